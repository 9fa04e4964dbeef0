import { env } from 'cloudflare:workers';
import { afterEach, expect, test } from 'vitest';
import { configurationOf } from '../../../worker/configuration.ts';
import { PoolListSchema } from '../../../worker/routes/pools.ts';
import type { HostDouble } from '../../fixtures/host-double/host-double.ts';
import { api } from '../harness/api.ts';
import { connectFakeHost } from '../harness/fake-host.ts';
import { OPERATOR_TOKEN } from '../issuer-bindings.ts';

const operator = { token: OPERATOR_TOKEN };
const hosts: HostDouble[] = [];
afterEach(() => {
  for (const host of hosts.splice(0)) host.close();
});

async function pools(query = '') {
  return PoolListSchema.parse((await api('GET', `/v1/pools${query}`, operator)).json);
}

test('a pool is listed with its hosts and their room, which a cordoned one does not add to', async () => {
  hosts.push(await connectFakeHost({ capacity: 10 }), await connectFakeHost({ capacity: 30 }));
  await api('POST', `/v1/hosts/${hosts[1]?.hostId}/cordon`, operator);
  const load = { type: 'load', sandboxes: 4, capacity: { sandboxes: 10 }, degraded: false };
  hosts[0]?.sendControl(load);
  await expect
    .poll(async () => (await pools()).pools[0])
    .toEqual({
      pool: 'default',
      region: null,
      classes: null,
      hosts: { connected: 2, suspect: 0, dead: 0 },
      sandboxes: 4,
      capacity: { sandboxes: 40 },
      room: 6,
    });
});

test('all pools of the edge are listed, in pages', async () => {
  const configured = [...(await configurationOf(env)).pools.keys()].toSorted();
  const seen: string[] = [];
  for (let cursor: string | null = ''; cursor !== null; ) {
    const page: Awaited<ReturnType<typeof pools>> = await pools(
      `?limit=1${cursor === '' ? '' : `&cursor=${cursor}`}`,
    );
    seen.push(...page.pools.map(({ pool }) => pool));
    cursor = page.next_cursor;
  }
  expect(seen).toEqual(configured);
});
