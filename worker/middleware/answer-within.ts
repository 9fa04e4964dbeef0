/**
 * Waits for what another request of this isolate asked for. A request that has gone takes what it asked with it: nobody would
 * hear of it, so who joins waits on a timer of its own. Undefined where no answer came in time.
 */
export async function answerWithin<T>(asked: Promise<T>, waitMs: number): Promise<T | undefined> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const patience = new Promise<undefined>((resolve) => {
    timer = setTimeout(() => resolve(undefined), waitMs);
  });
  try {
    return await Promise.race([asked, patience]);
  } finally {
    if (timer !== undefined) clearTimeout(timer);
  }
}
