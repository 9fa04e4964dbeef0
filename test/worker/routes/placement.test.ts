import { env } from 'cloudflare:workers';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { SessionSchema } from '../../../shared/session.ts';
import type { HostDouble } from '../../fixtures/host-double/host-double.ts';
import { tokenOf } from '../fixture-issuer.ts';
import { api, problemIn } from '../harness/api.ts';
import { connectFakeHost } from '../harness/fake-host.ts';

let hosts: HostDouble[];
beforeEach(async () => {
  hosts = [await connectFakeHost(), await connectFakeHost()];
});
afterEach(() => {
  for (const host of hosts) host.close();
});

async function create() {
  return api('POST', '/v1/sessions', { token: await tokenOf(), body: {} });
}

async function sandboxesOf(host: HostDouble): Promise<number | undefined> {
  const hosts = await env.POOL.getByName('default').listHosts();
  return hosts.ok ? hosts.value.find(({ host_id }) => host_id === host.hostId)?.sandboxes : undefined;
}

describe('a session whose first host has no room', () => {
  test.each(['host_full', 'host_degraded'])('(%s) is made on another one', async (code) => {
    const [full, roomy] = hosts;
    if (full === undefined || roomy === undefined) throw new Error('two hosts were expected');
    full.refuseAttach = code;
    // The one without room looks emptier to the pool, so it is asked first.
    roomy.sendControl({ type: 'load', sandboxes: 50, capacity: { sandboxes: 100 }, degraded: false });
    await expect.poll(() => sandboxesOf(roomy)).toBe(50);
    const answer = await create();
    expect(answer.status).toBe(201);
    expect(SessionSchema.parse(answer.json)).toMatchObject({ state: 'running', host_id: roomy.hostId });
    expect(full.commands.map(({ claims }) => claims.act)).toEqual(['attach']);
  });

  test('is made on another one where its agent dies in the middle of it', async () => {
    const [dying, other] = hosts;
    if (dying === undefined || other === undefined) throw new Error('two hosts were expected');
    dying.restartsInAttaches = 1;
    other.sendControl({ type: 'load', sandboxes: 50, capacity: { sandboxes: 100 }, degraded: false });
    await expect.poll(() => sandboxesOf(other)).toBe(50);
    const answer = await create();
    expect(SessionSchema.parse(answer.json)).toMatchObject({ state: 'running', host_id: other.hostId });
    expect(dying.commands.map(({ claims }) => claims.act)).toEqual(['attach']);
  });

  test('is refused with the reason and a time to come back when no other takes it', async () => {
    for (const host of hosts) host.refuseAttach = 'host_full';
    const answer = await create();
    expect(problemIn(answer)).toMatchObject({ status: 503, code: 'host_full', retryable: true });
    expect(Number(answer.headers.get('Retry-After'))).toBeGreaterThan(0);
    for (const host of hosts) {
      expect(host.commands.filter(({ claims }) => claims.act === 'attach')).toHaveLength(1);
    }
  });

  test('asks three hosts at most', async () => {
    hosts.push(await connectFakeHost(), await connectFakeHost());
    for (const host of hosts) host.refuseAttach = 'host_full';
    expect(problemIn(await create())).toMatchObject({ code: 'host_full' });
    const asked = hosts.filter((host) => host.commands.some(({ claims }) => claims.act === 'attach'));
    expect(asked).toHaveLength(3);
  });

  test('is not tried elsewhere for what every host would refuse', async () => {
    for (const host of hosts) host.refuseAttach = 'limits_exceeded';
    expect(problemIn(await create())).toMatchObject({ code: 'limits_exceeded' });
    const asked = hosts.filter((host) => host.commands.some(({ claims }) => claims.act === 'attach'));
    expect(asked).toHaveLength(1);
  });
});
