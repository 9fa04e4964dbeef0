/** What waits for a reader or a program that does not read is bounded, and ends in the truth. */
import { createHash } from 'node:crypto';
import { describe, expect, test } from 'vitest';
import { MAX_STDIN_BYTES } from '../../shared/limits.ts';
import { PATIENCE_MS } from '../patience.ts';
import { useSession, useStack } from './stack.ts';
import { pause, timed } from './until.ts';

const stack = useStack();

describe('a streamed call that prints more than is kept', () => {
  const session = useSession(stack);

  test('on one stream gives the other whole, though it comes last, and its receipt is taken', async () => {
    const command = "head -c 5000000 /dev/zero | tr '\\0' e >&2; sleep 0.3; echo done";
    const { value: seen, elapsedMs } = await timed(
      session()
        .stream('shell', { command })
        .then((stream) => stream.collect()),
    );
    expect(seen.end).toMatchObject({ status: 'succeeded', stdout_bytes: 5, stderr_bytes: 5_000_000 });
    expect(seen.stdout).toBe('done\n');
    expect(elapsedMs).toBeLessThan(15_000);
    const shown = await session().execution(seen.end?.execution_id ?? '');
    expect(shown.stdout).toBe('done\n');
    expect(shown.receipt?.signatures).toHaveLength(2);
    expect(await session().sh('echo next')).toMatchObject({ status: 'succeeded', state_lost: false });
  });

  test('to a reader that does not read ends at its timeout, and says so', async () => {
    const stream = await session().stream('shell', { command: 'yes abcdefgh' }, { timeoutMs: 3_000 });
    // Longer than the host is waited for after the deadline.
    await pause(8_000);
    const seen = await stream.collect();
    expect(seen.end?.status).toBe('timeout');
    expect((await session().sh('echo next')).stdout).toBe('next\n');
  });
});

test('input that a program does not read yet waits up to a bound, and none of it is lost', async () => {
  const session = await stack().open();
  const command = 'until [ -e go ]; do sleep 0.1; done; sha256sum';
  const started = await session.detach('shell', { command }, { timeoutMs: PATIENCE_MS });
  const url = `${stack().stack.url}${session.path}/executions/${started.execution_id}/stdin`;
  const headers = {
    authorization: `Bearer ${stack().api.token}`,
    'content-type': 'application/octet-stream',
  };
  const hash = createHash('sha256');
  let refusals = 0;
  for (let n = 0; n < 8; n += 1) {
    const body = Buffer.alloc(MAX_STDIN_BYTES, 0x61 + n);
    hash.update(body);
    for (;;) {
      const answer = await fetch(`${url}${n === 7 ? '?eof=true' : ''}`, { method: 'POST', headers, body });
      if (answer.status === 204) break;
      expect([409, 429]).toContain(answer.status);
      if (answer.status === 429 && refusals === 0) await session.py("open('go', 'w').close()");
      if (answer.status === 429) refusals += 1;
      await pause(100);
    }
  }
  expect(refusals).toBeGreaterThan(0);
  const ended = await session.ended(started.execution_id, PATIENCE_MS);
  expect(ended).toMatchObject({ status: 'succeeded', stdout: `${hash.digest('hex')}  -\n` });
  await session.delete();
});
