import { describe, expect, test } from 'vitest';
import { ResendBuffer } from '../../../host-agent/edge/resend-buffer.ts';
import { newId } from '../../../shared/ids.ts';

const executionId = newId('exe');
const other = newId('exe');

function filled(frames: number, frameBytes = 100, shareBytes = 0): ResendBuffer {
  const buffer = new ResendBuffer({ windowBytes: 1000, reserveBytes: 200, shareBytes });
  for (let count = 0; count < frames; count += 1) push(buffer, frameBytes);
  return buffer;
}

function push(buffer: ResendBuffer, bytes: number, of = executionId): void {
  const header = {
    type: 'output',
    epoch: 1,
    seq: buffer.nextSeq(),
    execution_id: of,
    stream: 'stdout',
    offset: 0,
  } as const;
  buffer.push({ header, head: new Uint8Array(0), payload: new Uint8Array(bytes) });
}

/** Whether a promise has settled once every reaction that is due has run. */
async function hasSettled(promise: Promise<void>): Promise<boolean> {
  let settled = false;
  void promise.then(() => {
    settled = true;
  });
  await new Promise((resolve) => setImmediate(resolve));
  return settled;
}

describe('a resend buffer', () => {
  test('numbers frames from 1 and keeps them until they are acknowledged', () => {
    const buffer = filled(5);
    expect(buffer.acknowledge(3)).toBe(true);
    expect(buffer.unacknowledged().map(({ seq }) => seq)).toEqual([4, 5]);
    expect(buffer.unackedBytes).toBe(200);
    expect(buffer.nextSeq()).toBe(6);
  });

  test('takes an older acknowledgement for nothing and a future one for a lie', () => {
    const buffer = filled(5);
    buffer.acknowledge(4);
    expect(buffer.acknowledge(2)).toBe(true);
    expect(buffer.ackedSeq).toBe(4);
    expect(buffer.acknowledge(6)).toBe(false);
  });

  test('gives room in the order of asking, as much as was acknowledged', async () => {
    const buffer = filled(10);
    const first = buffer.waitForRoom(150, executionId);
    const second = buffer.waitForRoom(50, executionId);
    expect(await hasSettled(first)).toBe(false);
    buffer.acknowledge(1);
    expect(await hasSettled(first)).toBe(false);
    buffer.acknowledge(2);
    expect(await hasSettled(first)).toBe(true);
    push(buffer, 150);
    expect(await hasSettled(second)).toBe(true);
  });

  test('lets one frame of any size pass when nothing is unacknowledged', async () => {
    const buffer = filled(0);
    expect(await hasSettled(buffer.waitForRoom(5000, executionId))).toBe(true);
    push(buffer, 5000);
    expect(buffer.isOverfull).toBe(true);
    expect(await hasSettled(buffer.waitForRoom(1, executionId))).toBe(false);
  });

  test('lets go of a waiter whose signal aborts, and serves the next', async () => {
    const buffer = filled(9);
    const aborted = new AbortController();
    const large = buffer.waitForRoom(500, executionId, aborted.signal);
    const small = buffer.waitForRoom(100, executionId);
    expect(await hasSettled(small)).toBe(false);
    aborted.abort();
    expect(await hasSettled(large)).toBe(true);
    expect(await hasSettled(small)).toBe(true);
  });

  test('keeps to a window that the edge made smaller', async () => {
    const buffer = filled(3);
    buffer.limitWindow(350);
    expect(await hasSettled(buffer.waitForRoom(100, executionId))).toBe(false);
    buffer.limitWindow(5000);
    buffer.acknowledge(1);
    expect(await hasSettled(buffer.waitForRoom(200, executionId))).toBe(false);
  });

  test('tells when a frame was acknowledged', async () => {
    const buffer = filled(3);
    const third = buffer.whenAcknowledged(3);
    buffer.acknowledge(2);
    expect(await hasSettled(third)).toBe(false);
    buffer.acknowledge(3);
    expect(await hasSettled(third)).toBe(true);
    expect(await hasSettled(buffer.whenAcknowledged(1))).toBe(true);
  });

  test('holds nobody back once it is abandoned', async () => {
    const buffer = filled(10);
    const waiting = buffer.waitForRoom(100, executionId);
    buffer.abandon();
    expect(await hasSettled(waiting)).toBe(true);
  });

  test('has a share for each execution, however full another has made it', async () => {
    const buffer = filled(10, 100, 250);
    const mine = buffer.waitForRoom(100, executionId);
    expect(await hasSettled(mine)).toBe(false);
    expect(buffer.hasRoom(300, other)).toBe(false);
    for (let count = 0; count < 2; count += 1) {
      expect(await hasSettled(buffer.waitForRoom(100, other))).toBe(true);
      push(buffer, 100, other);
    }
    const beyondShare = buffer.waitForRoom(100, other);
    expect(await hasSettled(beyondShare)).toBe(false);
    buffer.acknowledge(0, { seq: 12, held: [executionId] });
    expect(await hasSettled(beyondShare)).toBe(true);
    expect(await hasSettled(mine)).toBe(false);
  });

  test('keeps what is held, and sends only that again', () => {
    const buffer = filled(2);
    push(buffer, 100, other);
    push(buffer, 100);
    push(buffer, 100, other);
    expect(buffer.acknowledge(1, { seq: 4, held: [executionId] })).toBe(true);
    expect(buffer.unacknowledged().map(({ seq }) => seq)).toEqual([2, 4, 5]);
    expect(buffer.unackedBytes).toBe(300);
    expect(buffer.unacknowledgedOf(other)).toHaveLength(1);
    expect(buffer.acknowledge(1, { seq: 6, held: [executionId] })).toBe(false);
  });
});
