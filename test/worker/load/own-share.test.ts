/** What the edge's overload protection hears of a request when it is answered, by the front door. */
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { Shedding } from '../../../worker/load/shedding.ts';
import { echo, type Script } from '../../fixtures/host-double/host-double.ts';
import { api } from '../harness/api.ts';
import { alice, host, open, useScriptedHost } from '../harness/scripted-host.ts';

useScriptedHost();

/** Whether each was slow, in the order of the answers. */
const told: (boolean | undefined)[] = [];
beforeEach(() => {
  told.length = 0;
  vi.spyOn(Shedding.prototype, 'admit').mockImplementation(() => (isSlow) => told.push(isSlow));
});
afterEach(() => {
  vi.restoreAllMocks();
  host.script = echo;
});

const ranFor =
  (durationMs: number): Script =>
  async (execution) => {
    execution.started();
    await execution.finish({ duration_ms: durationMs });
  };

async function execute(sessionId: string): Promise<void> {
  const body = { tool_name: 'shell', arguments: { command: 'true' } };
  const answer = await api('POST', `/v1/sessions/${sessionId}/execute`, { token: await alice(), body });
  expect(answer.status).toBe(200);
}

test('of a call it hears how the edge did, and of what says nothing of its time it hears nothing', async () => {
  const sessionId = await open(await alice());
  await execute(sessionId);
  expect((await api('GET', '/v1/sessions', { token: await alice() })).status).toBe(200);
  expect(told).toEqual([undefined, false, undefined]);
});

test('the time of the program is none of the edge’s', async () => {
  const sessionId = await open(await alice());
  // Longer than the call took in all: what is left for the edge is less than nothing, and says nothing.
  host.script = ranFor(3_600_000);
  await execute(sessionId);
  expect(told).toEqual([undefined, undefined]);
});
