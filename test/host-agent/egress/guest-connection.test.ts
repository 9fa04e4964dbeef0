import { describe, expect, test, vi } from 'vitest';
import type { BandwidthShare } from '../../../host-agent/egress/bandwidth.ts';
import { GuestConnection } from '../../../host-agent/egress/guest-connection.ts';
import { CONNECTION_WINDOW_BYTES, parseGuestMessage } from '../../../host-agent/egress/messages.ts';

const UNBOUNDED: BandwidthShare = { take: () => true, close: () => undefined };

/** Grants nothing until it is told to, and then what it was asked for first. */
function slowShare() {
  const asked: { bytes: number; whenGranted: () => void }[] = [];
  const share: BandwidthShare = {
    take: (bytes, whenGranted) => {
      asked.push({ bytes, whenGranted });
      return false;
    },
    close: () => undefined,
  };
  return { share, asked, grant: () => asked.shift()?.whenGranted() };
}

function connection(bandwidth = UNBOUNDED) {
  const sent: ReturnType<typeof parseGuestMessage>[] = [];
  const made = new GuestConnection(
    7,
    (message) => sent.push(parseGuestMessage(message.subarray(4))),
    bandwidth,
  );
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

  test('hands on what the guest sends, and gives credit for it, when there is bandwidth for it', async () => {
    const { share, grant } = slowShare();
    const { made, kinds } = connection(share);
    const chunks: Buffer[] = [];
    made.on('data', (chunk) => chunks.push(chunk));
    const read = (): string => Buffer.concat(chunks).toString('latin1');
    const first = '1'.repeat(CHUNK.length);
    made.receiveData(Buffer.from(first));
    made.receiveData(Buffer.from('2'));
    made.receiveEnd();
    await turn();
    expect([read(), kinds()]).toEqual(['', []]);
    grant();
    await turn();
    expect([read(), kinds(), made.readableEnded]).toEqual([first, ['credit'], false]);
    grant();
    await turn();
    expect([read(), made.readableEnded]).toEqual([`${first}2`, true]);
  });

  test('takes what it is to send when there is bandwidth for it, and not before', async () => {
    const { share, asked, grant } = slowShare();
    const { made, dataBytes } = connection(share);
    let isDone = false;
    made.write(Buffer.alloc(40_000), () => {
      isDone = true;
    });
    expect([dataBytes(), asked.length]).toEqual([0, 1]);
    grant();
    expect(dataBytes()).toBe(32 * 1024);
    await turn();
    expect(isDone).toBe(false);
    grant();
    await turn();
    expect([dataBytes(), isDone]).toEqual([40_000, true]);
  });

  test('that is cut while it waits for bandwidth sends nothing afterwards', async () => {
    const { share, grant } = slowShare();
    const { made, kinds } = connection(share);
    made.write(CHUNK, () => undefined);
    made.destroy();
    await turn();
    grant();
    expect(kinds()).toEqual(['closed']);
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
