/** A program with state that prints a number every 10 ms, and whose session moves between two hosts meanwhile. */
import { hash } from 'node:crypto';
import { expect } from 'vitest';
import { readReceipt, verifyChain } from '../../shared/receipt-verify.ts';
import { SessionSchema } from '../../shared/session.ts';
import type { SessionClient } from './client.ts';
import { collected, type SeenEvent } from './event-stream.ts';

const TIMEOUT_MS = 600_000;

export async function migrate(session: SessionClient): Promise<string | null> {
  const answer = await session.api.json(SessionSchema, 'POST', `${session.path}/migrate`);
  return answer.value.host_id;
}

/**
 * Reads the stream of the call while its session moves; every number has to come once, and the receipt to say so. `hosts`
 * are those that it ran on, by the receipt too: so every move happened before the program had ended.
 */
export async function printWhileMoving(
  session: SessionClient,
  {
    numbers,
    rounds,
    stateBytes,
    move = migrate,
  }: { numbers: number; rounds: number; stateBytes: number; move?: typeof migrate },
): Promise<{ hosts: (string | null)[] }> {
  const code = `import time
state = bytearray(b'kept') * ${Math.round(stateBytes / 4)}
for number in range(${numbers}):
    print(number, flush=True)
    time.sleep(0.01)
len(state), bytes(state[-4:])`;
  const stream = await session.stream('python', { code }, { timeoutMs: TIMEOUT_MS });
  const events: SeenEvent[] = [];
  const hosts: (string | null)[] = [(await session.describe()).host_id];
  const step = Math.floor(numbers / (rounds + 1));
  let lines = 0;
  let moving: Promise<void> = Promise.resolve();
  let begun = 0;
  for await (const seen of stream) {
    events.push(seen);
    if (seen.event.event !== 'stdout') continue;
    lines += seen.event.text.split('\n').length - 1;
    if (begun < rounds && lines >= step * (begun + 1)) {
      begun += 1;
      moving = moving.then(async () => {
        hosts.push(await move(session));
      });
    }
  }
  await moving;
  const { stdout, end } = collected(events);
  expect(end).toMatchObject({ status: 'succeeded', state_lost: false });
  const text = Array.from({ length: numbers }, (_, number) => `${number}\n`).join('');
  expect(stdout).toBe(text);
  expect(end?.value).toBe(`(${4 * Math.round(stateBytes / 4)}, b'kept')`);
  expect(hosts).toHaveLength(rounds + 1);
  const read = readReceipt(await session.receipt(end?.execution_id ?? ''));
  if (!read.ok) throw new Error(read.detail);
  const { receipt } = read.value;
  expect(receipt.stdout).toEqual({ sha256: hash('sha256', text), bytes: text.length, truncated: false });
  expect([...(receipt.former_hosts ?? []), receipt.host_id]).toEqual(hosts);
  const exported = await session.receipts();
  expect(await verifyChain(exported.receipts, exported.keys, session.id)).toMatchObject({ ok: true });
  return { hosts };
}
