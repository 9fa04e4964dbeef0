/** F29: a host whose clock is off learns it from the edge, and says so in its log and in its receipts. */
import { describe, expect, test } from 'vitest';
import { type LogFields, SILENT_LOG } from '../../../host-agent/logging/log.ts';
import { readReceipt } from '../../../shared/receipt-verify.ts';
import { linkHost } from '../../fixtures/edge-double/host.ts';

/** What a host logs of its second control link, whose edge is this far behind. */
async function linkedAgain(behindMs: number | undefined): Promise<LogFields[]> {
  const lines: LogFields[] = [];
  const host = await linkHost({ log: { ...SILENT_LOG, error: (fields) => void lines.push(fields) } });
  try {
    const { edge } = host;
    edge.clockBehindMs = behindMs;
    await edge.changes.until('the control link', () => edge.readyControlLinks >= 1 || undefined);
    edge.controlSocket?.close(1001);
    await edge.changes.until('another control link', () => edge.readyControlLinks >= 2 || undefined);
    return lines.filter(({ event }) => event === 'clock_skew');
  } finally {
    await host.stop();
  }
}

describe('F29 a host', () => {
  test.each([
    [32_000, 'is 3'],
    [600_000, 'is 600 s ahead'],
    [-600_000, 'is -600 s ahead'],
  ])('whose edge is %i ms behind logs it', async (behindMs, detail) => {
    const lines = await linkedAgain(behindMs);
    expect(lines).toHaveLength(1);
    expect(lines[0]?.detail).toContain(detail);
  });

  test.each([[25_000], [-25_000], [undefined]])(
    'whose edge is %s ms behind, or does not tell the time, logs nothing of it',
    async (behindMs) => {
      expect(await linkedAgain(behindMs)).toEqual([]);
    },
  );

  test.each([
    [undefined, undefined],
    [2_000, undefined],
    [20_000, 20_000],
    [-20_000, -20_000],
  ])('whose edge is %s ms behind notes in its receipts: %s', async (behindMs, noted) => {
    const host = await linkHost();
    try {
      const { edge } = host;
      edge.clockBehindMs = behindMs;
      edge.controlSocket?.close(1001);
      await edge.changes.until('another control link', () => edge.readyControlLinks >= 2 || undefined);
      const { grants, peer } = await host.attach();
      const grant = await grants.execute('python', { code: '1' });
      peer.command(grant.token, grant.payload);
      (await host.sandboxes.call(grant.claims.exec ?? '')).end();
      const read = readReceipt((await peer.finished(grant.claims.exec ?? '')).receipt);
      if (!read.ok) throw new Error(read.detail);
      const { clock_ahead_ms: aheadMs } = read.value.receipt;
      expect(aheadMs === undefined).toBe(noted === undefined);
      expect(Math.abs((aheadMs ?? 0) - (noted ?? 0))).toBeLessThan(5_000);
    } finally {
      await host.stop();
    }
  });

  test('tells the edge what time it has, at the start and with each load', async () => {
    const host = await linkHost();
    try {
      const hello = await host.edge.controlFrame('hello', () => true);
      const load = await host.edge.controlFrame('load', () => true);
      for (const { host_time_ms } of [hello, load]) {
        expect(Math.abs((host_time_ms ?? 0) - Date.now())).toBeLessThan(30_000);
      }
    } finally {
      await host.stop();
    }
  });
});
