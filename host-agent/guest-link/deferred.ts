/** A promise that is settled from outside, at most once. */
export interface Deferred<T> {
  readonly promise: Promise<T>;
  readonly resolve: (value: T) => void;
  readonly settled: boolean;
}

export function deferred<T>(): Deferred<T> {
  const { promise, resolve } = Promise.withResolvers<T>();
  let settled = false;
  return {
    promise,
    resolve: (value) => {
      settled = true;
      resolve(value);
    },
    get settled() {
      return settled;
    },
  };
}

/** The promise's value, or `onTimeout()` once the time is over. The timer does not outlive the answer. */
export async function within<T>(promise: Promise<T>, timeoutMs: number, onTimeout: () => T): Promise<T> {
  const late = Promise.withResolvers<T>();
  const timer = setTimeout(() => late.resolve(onTimeout()), timeoutMs);
  try {
    return await Promise.race([promise, late.promise]);
  } finally {
    clearTimeout(timer);
  }
}
