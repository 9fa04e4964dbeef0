import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { processStartTicks } from '../../../host-agent/process/process-identity.ts';
import { gatewayChild } from '../../../scripts/development/gateway-child.ts';
import type { GatewayMessage } from '../../../scripts/development/gateway-message.ts';
import { requireFreePort } from '../../../scripts/development/port.ts';
import type { SupervisedChild } from '../../../scripts/development/supervised-child.ts';
import { waitUntil } from '../../../scripts/development/wait-until.ts';
import { locations } from '../../../scripts/locations.ts';

const ENTRY = new URL('../../fixtures/gateway-worker/index.mjs', import.meta.url).pathname;
const WAIT = { timeoutMs: 15_000, intervalMs: 20 };

describe('the gateway process', () => {
  let stateDir: string;
  let url: string;
  let gateway: SupervisedChild;
  const messages: GatewayMessage[] = [];
  const workerdPid = () => {
    const pid = messages.at(-1)?.workerd_pid;
    // 0 would name this process's own group.
    if (pid === undefined || pid <= 0) throw new Error('workerd does not run');
    return pid;
  };
  const messageCount = (count: number) =>
    waitUntil(() => (messages.length >= count ? true : undefined), WAIT);
  /** What the Worker answers, once it does: while workerd restarts, connections are refused. */
  const answer = () =>
    waitUntil(async () => {
      const response = await fetch(url).catch(() => undefined);
      return response?.ok ? await response.text() : undefined;
    }, WAIT);

  beforeAll(async () => {
    stateDir = mkdtempSync(join(tmpdir(), 'sandgate-gateway-'));
    const port = await requireFreePort(0);
    url = `http://127.0.0.1:${port}`;
    gateway = gatewayChild({
      locations: { ...locations({}), stateDir },
      port,
      entry: ENTRY,
      bindings: { EDGE_ORIGIN: 'http://127.0.0.1:1' },
      onMessage: (message) => messages.push(message),
      onRestart: () => {},
    });
    gateway.start();
    await messageCount(1);
  });

  afterAll(async () => {
    await gateway.stop(5_000);
    rmSync(stateDir, { recursive: true, force: true });
  });

  test('says where it listens, and hands the bindings on', async () => {
    expect(messages[0]).toMatchObject({ type: 'ready', url: `${url}/` });
    expect(await answer()).toBe('{"total":1,"origin":"http://127.0.0.1:1"}');
  });

  test('comes back on the same port with the same state when workerd is killed', async () => {
    const killed = workerdPid();
    process.kill(killed, 'SIGKILL');
    expect(await messageCount(2)).toBe(true);
    expect(messages.at(-1)?.type).toBe('workerd_restarted');
    expect(workerdPid()).not.toBe(killed);
    expect(await answer()).toBe('{"total":2,"origin":"http://127.0.0.1:1"}');
  });

  test('takes workerd with it when it is killed itself, and comes back', async () => {
    const orphan = workerdPid();
    await gateway.crash();
    const gone = await waitUntil(() => (processStartTicks(orphan) === undefined ? true : undefined), WAIT);
    expect(gone).toBe(true);
    expect(await messageCount(3)).toBe(true);
    expect(await answer()).toBe('{"total":3,"origin":"http://127.0.0.1:1"}');
  });

  test('leaves no workerd behind when it is stopped', async () => {
    const pid = workerdPid();
    await gateway.stop(5_000);
    // The kernel ends it as the gateway's process goes, which may be a moment after that process was reaped.
    const gone = await waitUntil(() => (processStartTicks(pid) === undefined ? true : undefined), WAIT);
    expect(gone).toBe(true);
  });
});
