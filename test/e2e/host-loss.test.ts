/** A machine stands still with the sessions on it, for so long that the edge gives it up, and then comes back: two real agents. */
import { EventSourceParserStream } from 'eventsource-parser/stream';
import { describe, expect, test } from 'vitest';
import { SessionStreamEventSchema } from '../../shared/event.ts';
import { verifyChain } from '../../shared/receipt-verify.ts';
import { SnapshotSchema } from '../../shared/snapshot-resource.ts';
import { PATIENCE_MS } from '../patience.ts';
import type { SessionClient } from './client.ts';
import { processesOfSandbox } from './leftovers.ts';
import { useSecondHost } from './second-host.ts';
import { useStack } from './stack.ts';
import { until } from './until.ts';

const stack = useStack(() => ({ SANDGATE_POOL_CEILING: '0' }));
const second = useSecondHost(stack);

async function openOnSecond(body: object): Promise<SessionClient> {
  return until('a session is made on the second host', PATIENCE_MS, async () => {
    const session = await stack().open({ ...body });
    if ((await session.describe()).host_id === second().hostId) return session;
    await session.delete();
    return undefined;
  });
}

const keep = async (session: SessionClient, name: string) =>
  (await session.api.json(SnapshotSchema, 'POST', `${session.path}/snapshots`, { body: { name } })).value;

async function lossOf(session: SessionClient) {
  const abort = new AbortController();
  const response = await session.api.fetch('GET', `${session.path}/events`, { signal: abort.signal });
  const lines = (response.body ?? new ReadableStream())
    .pipeThrough(new TextDecoderStream())
    .pipeThrough(new EventSourceParserStream());
  for await (const { data } of lines) {
    const event = SessionStreamEventSchema.parse(JSON.parse(data));
    if (event.type !== 'session.host_lost') continue;
    abort.abort();
    return event.data;
  }
  throw new Error('the stream ended before it');
}

describe('a machine that is lost', () => {
  test('costs a session that is to be rebuilt what came after its last snapshot, and nothing more', {
    timeout: 480_000,
  }, async () => {
    const rebuilt = await openOnSecond({ on_host_loss: 'rebuild' });
    const failing = await openOnSecond({});
    await rebuilt.py('kept = list(range(1000))\nopen("/workspace/kept", "w").write("on disk")');
    const { snapshot_id: snapshotId } = await keep(rebuilt, 'point');
    await rebuilt.py('lost = 1\nopen("/workspace/lost", "w").write("on disk")');
    const running = await rebuilt.detach(
      'shell',
      { command: 'echo begun; sleep 120' },
      { timeoutMs: 300_000 },
    );
    await until('it runs', PATIENCE_MS, async () =>
      (await rebuilt.execution(running.execution_id)).stdout === 'begun\n' ? true : undefined,
    );

    const { sandbox_id: sandboxId } = await rebuilt.describe();
    await second().freeze();
    const back = await until('the session runs elsewhere', 120_000, async () => {
      const now = await rebuilt.describe();
      return now.state === 'running' && now.host_id === stack().stack.hostId ? now : undefined;
    });
    expect(back.epoch).toBeGreaterThan(1);
    expect(await rebuilt.execution(running.execution_id)).toMatchObject({
      status: 'unknown',
      reason: 'host_lost',
      stdout: 'begun\n',
    });
    const looked = await rebuilt.py(
      'import os\n(len(kept), "lost" in globals(), sorted(os.listdir("/workspace")))',
    );
    expect(looked).toMatchObject({
      status: 'succeeded',
      value: "(1000, False, ['kept'])",
      state_lost: true,
    });
    expect(await lossOf(rebuilt)).toMatchObject({
      from_host_id: second().hostId,
      snapshot_id: snapshotId,
    });
    const exported = await rebuilt.receipts();
    expect(await verifyChain(exported.receipts, exported.keys, rebuilt.id)).toMatchObject({ ok: true });
    expect(exported.keys.hosts.map(({ host_id }) => host_id)).toEqual([
      second().hostId,
      stack().stack.hostId,
    ]);
    await until('the other session has failed', PATIENCE_MS, async () =>
      (await failing.describe()).error?.code === 'host_lost' ? true : undefined,
    );

    await second().thaw();
    await until('what it had of the session is gone', PATIENCE_MS, async () =>
      (await processesOfSandbox(second().stateDir, sandboxId ?? '')).length === 0 ? true : undefined,
    );
    await until('it is back', PATIENCE_MS, async () => {
      const hosts = await stack().stack.operator.hosts();
      return hosts.some(({ host_id, state }) => host_id === second().hostId && state === 'connected')
        ? true
        : undefined;
    });
    expect(await rebuilt.py('len(kept)')).toMatchObject({ value: '1000', state_lost: false });
    expect((await rebuilt.describe()).host_id).toBe(stack().stack.hostId);
    await rebuilt.delete();
    await failing.delete();
  });
});
