import { expect, test } from 'vitest';
import { StdinQueue } from '../../../host-agent/execution/stdin-queue.ts';
import type { RunningExecution } from '../../../host-agent/sandbox/port.ts';
import { type Outcome, success } from '../../../shared/errors.ts';
import { MAX_STDIN_BYTES } from '../../../shared/limits.ts';

/** A program that takes one write each time it is told to read. */
class SlowReader implements Pick<RunningExecution, 'writeStdin'> {
  readonly taken: string[] = [];
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
}

const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

test('writes arrive one after the other, and nothing means the end', async () => {
  const program = new SlowReader();
  const stdin = new StdinQueue(program, () => {});
  const writes = ['a', 'b', ''].map((text) => stdin.write(new TextEncoder().encode(text)));
  for (let count = 0; count < 3; count += 1) {
    await turn();
    program.read();
  }
  await Promise.all(writes);
  expect(program.taken).toEqual(['a', 'b', 'EOF']);
});

test('more than can wait is refused, and what fits once the program has read is taken', async () => {
  const program = new SlowReader();
  const stdin = new StdinQueue(program, () => {});
  const bytes = new Uint8Array(MAX_STDIN_BYTES);
  const writes = [stdin.write(bytes), stdin.write(bytes)];
  await turn();
  program.read();
  await writes[0];
  writes.push(stdin.write(bytes));
  for (const _ of writes) {
    await turn();
    program.read();
  }
  expect((await Promise.all(writes)).every(({ ok }) => ok)).toBe(true);
  expect(await stdin.write(new Uint8Array(2 * MAX_STDIN_BYTES + 1))).toMatchObject({ code: 'overloaded' });
});

test('after a write that was refused none is taken, so that no hole or false end is read', async () => {
  const program = new SlowReader();
  const stdin = new StdinQueue(program, () => {});
  const first = stdin.write(new TextEncoder().encode('a'));
  expect((await stdin.write(new Uint8Array(2 * MAX_STDIN_BYTES))).ok).toBe(false);
  await turn();
  program.read();
  expect((await first).ok).toBe(true);
  for (const later of ['b', '']) {
    expect(await stdin.write(new TextEncoder().encode(later))).toMatchObject({ code: 'overloaded' });
  }
  expect(program.taken).toEqual(['a']);
});

test('says how many bytes were taken since the start, and nothing of what found no room (K8)', async () => {
  const program = new SlowReader();
  const totals: number[] = [];
  const stdin = new StdinQueue(program, (bytes) => totals.push(bytes));
  const writes = ['abc', 'de', ''].map((text) => stdin.write(new TextEncoder().encode(text)));
  expect((await stdin.write(new Uint8Array(2 * MAX_STDIN_BYTES))).ok).toBe(false);
  expect(totals).toEqual([]);
  for (const _ of writes) {
    await turn();
    program.read();
  }
  await Promise.all(writes);
  expect(totals).toEqual([3, 5]);
});
