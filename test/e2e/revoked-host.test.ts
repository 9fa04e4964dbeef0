/** A host that is revoked while its agent cannot reach the edge: it hears why its link is refused once it can. */
import { afterAll, beforeAll, expect, test } from 'vitest';
import { FaultProxy } from '../fixtures/fault-proxy.ts';
import { PATIENCE_MS } from '../patience.ts';
import { ScriptedStack } from './scripted-stack.ts';
import { until } from './until.ts';

let edge: ScriptedStack;
let proxy: FaultProxy;

beforeAll(async () => {
  edge = await ScriptedStack.start();
  proxy = await FaultProxy.start(edge.stack.url);
}, 600_000);
afterAll(async () => {
  await edge.stop();
  await proxy.stop();
});

test('a host that was revoked while it was away knows why, and only since it can ask', async () => {
  const { agent } = await edge.addHost({ edgeUrl: proxy.url });
  proxy.accepts = false;
  proxy.reset();
  await until('it dials in vain', PATIENCE_MS, async () => (agent.isConnected ? undefined : true));
  const { url, operatorToken } = edge.stack;
  const headers = { authorization: `Bearer ${operatorToken}` };
  const revoked = await fetch(`${url}/v1/hosts/${agent.hostId}`, { method: 'DELETE', headers });
  expect(revoked.status).toBe(204);
  expect(agent.edgeRefusal).toBeUndefined();
  proxy.heal();
  expect(await until('it knows', PATIENCE_MS, async () => agent.edgeRefusal)).toEqual({
    code: 'unauthenticated',
    detail: 'the host was revoked; it may be enrolled anew, with another key',
  });
  expect(agent.isConnected).toBe(false);
}, 120_000);
