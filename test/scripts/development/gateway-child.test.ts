import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { processStartTicks } from '../../../host-agent/process/process-identity.ts';
import { gatewayChild } from '../../../scripts/development/gateway-child.ts';
import type { GatewayMessage } from '../../../scripts/development/gateway-message.ts';
import { requireFreePort } from '../../../scripts/development/port.ts';
import { waitUntil } from '../../../scripts/development/wait-until.ts';
import { locations } from '../../../scripts/locations.ts';

const ENTRY = new URL('../../fixtures/gateway-worker/index.mjs', import.meta.url).pathname;
const WAIT = { timeoutMs: 15_000, intervalMs: 20 };

async function start() {
  const stateDir = mkdtempSync(join(tmpdir(), 'sandgate-gateway-'));
  const port = await requireFreePort(0);
  const messages: GatewayMessage[] = [];
  const gateway = gatewayChild({
    locations: { ...locations({}), stateDir },
    port,
    entry: ENTRY,
    bindings: { EDGE_ORIGIN: 'http://127.0.0.1:1' },
    onMessage: (message) => messages.push(message),
    onRestart: () => {},
  });
  gateway.start();
  const messageCount = (count: number) =>
    waitUntil(() => (messages.length >= count ? true : undefined), WAIT);
  await messageCount(1);
  return {
    gateway,
    messages,
    messageCount,
    url: `http://127.0.0.1:${port}`,
    workerdPid: () => {
      const pid = messages.at(-1)?.workerd_pid;
      // 0 would name this process's own group.
      if (pid === undefined || pid <= 0) throw new Error('workerd does not run');
      return pid;
    },
    remove: async () => {
      await gateway.stop(5_000);
      rmSync(stateDir, { recursive: true, force: true });
    },
  };
}

describe('the gateway process', () => {
  let running: Awaited<ReturnType<typeof start>>;
  /** What the Worker answers, once it does: while workerd restarts, connections are refused. */
  const answer = () =>
    waitUntil(async () => {
      const response = await fetch(running.url).catch(() => undefined);
      return response?.ok ? await response.text() : undefined;
    }, WAIT);

  beforeAll(async () => {
    running = await start();
  });

  afterAll(() => running.remove());

  test('says where it listens, and hands the bindings on', async () => {
    expect(running.messages[0]).toMatchObject({ type: 'ready', url: `${running.url}/` });
    expect(await answer()).toBe('{"total":1,"origin":"http://127.0.0.1:1"}');
  });

  test('comes back on the same port with the same state when workerd is killed', async () => {
    const killed = running.workerdPid();
    process.kill(killed, 'SIGKILL');
    expect(await running.messageCount(2)).toBe(true);
    expect(running.messages.at(-1)?.type).toBe('workerd_restarted');
    expect(running.workerdPid()).not.toBe(killed);
    expect(await answer()).toBe('{"total":2,"origin":"http://127.0.0.1:1"}');
  });

  test('takes workerd with it when it is killed itself, and comes back', async () => {
    const orphan = running.workerdPid();
    await running.gateway.crash();
    const gone = await waitUntil(() => (processStartTicks(orphan) === undefined ? true : undefined), WAIT);
    expect(gone).toBe(true);
    expect(await running.messageCount(3)).toBe(true);
    expect(await answer()).toBe('{"total":3,"origin":"http://127.0.0.1:1"}');
  });

  test.each([
    ['in order', 5_000],
    ['hard', 0],
  ])('leaves no workerd behind when it is stopped %s', async (_, graceMs) => {
    const stopped = await start();
    const pid = stopped.workerdPid();
    await stopped.gateway.stop(graceMs);
    expect(processStartTicks(pid)).toBeUndefined();
    await stopped.remove();
  });
});
