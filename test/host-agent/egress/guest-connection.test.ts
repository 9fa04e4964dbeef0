import { describe, expect, test, vi } from 'vitest';
import { GuestConnection } from '../../../host-agent/egress/guest-connection.ts';
import { CONNECTION_WINDOW_BYTES, parseGuestMessage } from '../../../host-agent/egress/messages.ts';

function connection() {
  const sent: ReturnType<typeof parseGuestMessage>[] = [];
  const made = new GuestConnection(7, (message) => sent.push(parseGuestMessage(message.subarray(4))));
  made.on('error', () => undefined);
  const kinds = (): (string | undefined)[] => sent.map((message) => message?.kind);
  const dataBytes = (): number =>
    sent.reduce((sum, message) => sum + (message?.kind === 'data' ? message.bytes.length : 0), 0);
  return { made, sent, kinds, dataBytes };
}

const CHUNK = Buffer.alloc(16 * 1024, 'x');
const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

describe('a connection of the guest', () => {
  test('gives credit for what was read, and none while nobody reads', async () => {
    const { made, kinds } = connection();
    for (let sent = 0; sent < CONNECTION_WINDOW_BYTES; sent += CHUNK.length)
      expect(made.receiveData(CHUNK)).toBe(true);
    await turn();
    const before = kinds().length;
    expect(before).toBeLessThan(4);
    made.resume();
    await turn();
    expect(kinds().filter((kind) => kind === 'credit').length).toBeGreaterThan(before);
  });

  test('refuses data beyond the credit', async () => {
    const { made } = connection();
    made.pause();
    let accepted = 0;
    while (accepted < 100 && made.receiveData(CHUNK)) accepted += 1;
    expect(accepted * CHUNK.length).toBeGreaterThanOrEqual(CONNECTION_WINDOW_BYTES);
    expect(accepted * CHUNK.length).toBeLessThanOrEqual(2 * CONNECTION_WINDOW_BYTES);
  });

  test('refuses data after the end', () => {
    const { made } = connection();
    made.receiveEnd();
    expect(made.receiveData(CHUNK)).toBe(false);
  });

  test('sends as far as the guest takes it, and the rest when it has', async () => {
    const { made, dataBytes } = connection();
    let isDone = false;
    made.write(Buffer.alloc(3 * CONNECTION_WINDOW_BYTES), () => {
      isDone = true;
    });
    expect(dataBytes()).toBe(CONNECTION_WINDOW_BYTES);
    expect(made.receiveCredit(1000)).toBe(true);
    expect(dataBytes()).toBe(CONNECTION_WINDOW_BYTES + 1000);
    for (let round = 0; round < 3; round++) made.receiveCredit(Math.min(CONNECTION_WINDOW_BYTES, 64_000));
    await turn();
    expect(isDone).toBe(true);
    expect(dataBytes()).toBe(3 * CONNECTION_WINDOW_BYTES);
  });

  test('refuses credit for what was never sent', () => {
    expect(connection().made.receiveCredit(1)).toBe(false);
  });

  test('is over when both sides have said their last, and is then not cut', async () => {
    const { made, kinds } = connection();
    made.receiveData(Buffer.from('hello'));
    made.receiveEnd();
    made.end('bye');
    await turn();
    made.receiveClosed();
    const chunks: Buffer[] = [];
    for await (const chunk of made) chunks.push(chunk);
    expect(Buffer.concat(chunks).toString()).toBe('hello');
    expect(kinds()).toEqual(['data', 'end']);
  });

  test('that is cut by one side is cut for the other', async () => {
    const byHost = connection();
    byHost.made.destroy();
    await turn();
    expect(byHost.kinds()).toEqual(['closed']);
    const byGuest = connection();
    byGuest.made.receiveClosed();
    await turn();
    expect(byGuest.made.closed).toBe(true);
    expect(byGuest.kinds()).toEqual([]);
    expect(byGuest.made.errored).toMatchObject({ code: 'ECONNRESET' });
  });
});

describe('silence on a connection', () => {
  test('is told after its time, which each byte begins anew', async () => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
    try {
      const { made } = connection();
      let timeouts = 0;
      made.on('timeout', () => {
        timeouts += 1;
      });
      made.setTimeout(1_000);
      vi.advanceTimersByTime(900);
      made.receiveData(CHUNK);
      vi.advanceTimersByTime(900);
      made.write('x');
      vi.advanceTimersByTime(900);
      expect(timeouts).toBe(0);
      vi.advanceTimersByTime(200);
      expect(timeouts).toBe(1);
      made.setTimeout(1_000);
      made.setTimeout(0);
      vi.advanceTimersByTime(5_000);
      expect(timeouts).toBe(1);
    } finally {
      vi.useRealTimers();
    }
  });

  test('after its end is cut, unless the other side still sends', async () => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
    try {
      const { made } = connection();
      made.end();
      await turn();
      vi.advanceTimersByTime(29_000);
      made.receiveData(Buffer.from('x'));
      vi.advanceTimersByTime(29_000);
      expect(made.destroyed).toBe(false);
      vi.advanceTimersByTime(2_000);
      expect(made.destroyed).toBe(true);
    } finally {
      vi.useRealTimers();
    }
  });
});
