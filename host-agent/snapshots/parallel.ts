/** Runs the same work for many items, some at once, in their order, until one of them fails. */
import { type Failure, failure, type Outcome } from '../../shared/errors.ts';

export async function inParallel<Item>(
  items: AsyncIterable<Item> | Iterable<Item>,
  atOnce: number,
  work: (item: Item) => Promise<Outcome<unknown>>,
): Promise<Failure | undefined> {
  const running = new Set<Promise<void>>();
  let failed: Failure | undefined;
  for await (const item of items) {
    const one = work(item)
      .catch((error: unknown) =>
        failure('storage_unavailable', error instanceof Error ? error.message : 'a piece was not moved'),
      )
      .then((done) => {
        if (!done.ok) failed ??= done;
        running.delete(one);
      });
    running.add(one);
    if (running.size >= atOnce) await Promise.race(running);
    if (failed !== undefined) break;
  }
  await Promise.all(running);
  return failed;
}
