/**
 * A program that no replay could bring back: while it waits for five calls at once it has 100 MB, a lock that another thread
 * waits for, and an open generator. Its value has the answers first, then what became of each.
 */
export function holdingProgram(
  more: { question?: string; begin?: string; end?: string; value?: string } = {},
): string {
  const { question = 'n=n', begin = '', end = '', value = '' } = more;
  return `
import asyncio, hashlib, threading
held = bytearray(b"x" * 100_000_000)
lock = threading.Lock(); lock.acquire()
steps = []
def wait_for_lock():
    steps.append("begun")
    lock.acquire()
    steps.append("freed")
thread = threading.Thread(target=wait_for_lock); thread.start()
def count():
    n = 0
    while True:
        n += 1
        yield n
numbers = count(); next(numbers)
${begin}print("before")
answers = await asyncio.gather(*[tools.aio.people.ask(${question}) for n in range(5)])
lock.release(); thread.join()
${end}print("after")
(answers, next(numbers), steps, len(held), hashlib.sha256(held).hexdigest()[:8]${value})
`;
}
