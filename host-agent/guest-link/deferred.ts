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

/**
 * The promise's value, or `onTimeout()` once the time is over. The timer does not outlive the answer. `standing` says
 * whether the guest is kept from running, and until when: then the time begins anew.
 */
export async function within<T>(
  promise: Promise<T>,
  timeoutMs: number,
  onTimeout: () => T,
  standing: () => Promise<void> | undefined = () => undefined,
): Promise<T> {
  const late = Promise.withResolvers<T>();
  let isOver = false;
  let timer: NodeJS.Timeout | undefined;
  const wait = (): void => {
    if (isOver) return;
    timer = setTimeout(() => {
      const still = standing();
      if (still === undefined) late.resolve(onTimeout());
      else void still.then(wait);
    }, timeoutMs);
  };
  wait();
  try {
    return await Promise.race([promise, late.promise]);
  } finally {
    isOver = true;
    clearTimeout(timer);
  }
}
