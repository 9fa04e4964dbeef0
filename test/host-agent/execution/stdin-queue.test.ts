import { expect, test } from 'vitest';
import { StdinQueue } from '../../../host-agent/execution/stdin-queue.ts';
import type { RunningExecution } from '../../../host-agent/sandbox/port.ts';
import { type Outcome, success } from '../../../shared/errors.ts';
import { MAX_STDIN_BYTES } from '../../../shared/limits.ts';

/** A program that takes one write each time it is told to read. */
class SlowReader implements RunningExecution {
  readonly taken: string[] = [];
  readonly finished = new Promise<never>(() => {});
  #pending: (() => void)[] = [];

  read(): void {
    this.#pending.shift()?.();
  }

  writeStdin(bytes: Uint8Array, eof: boolean): Promise<Outcome<null>> {
    return new Promise((resolve) => {
      this.#pending.push(() => {
        this.taken.push(eof ? 'EOF' : new TextDecoder().decode(bytes));
        resolve(success(null));
      });
    });
  }

  interrupt(): void {}
}

const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

test('writes arrive one after the other, and nothing means the end', async () => {
  const program = new SlowReader();
  const stdin = new StdinQueue(program);
  const writes = ['a', 'b', ''].map((text) => stdin.write(new TextEncoder().encode(text)));
  for (let count = 0; count < 3; count += 1) {
    await turn();
    program.read();
  }
  await Promise.all(writes);
  expect(program.taken).toEqual(['a', 'b', 'EOF']);
});

test('more than can wait is refused, and fits again when the program has read', async () => {
  const program = new SlowReader();
  const stdin = new StdinQueue(program);
  const bytes = new Uint8Array(MAX_STDIN_BYTES);
  const first = stdin.write(bytes);
  const second = stdin.write(bytes);
  expect(await stdin.write(new Uint8Array(1))).toMatchObject({ ok: false, code: 'overloaded' });
  await turn();
  program.read();
  await first;
  void stdin.write(new Uint8Array(1));
  await turn();
  program.read();
  expect((await second).ok).toBe(true);
});
