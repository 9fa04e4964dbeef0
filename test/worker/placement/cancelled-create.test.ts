/** An isolate's picture of a large pool is asked for by one request for all: that one may be cut off in the middle. */
import { exports } from 'cloudflare:workers';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { success } from '../../../shared/errors.ts';
import { PoolObject } from '../../../worker/objects/pool/object.ts';
import { MANY_HOSTS } from '../../../worker/placement/pool-pictures.ts';
import type { HostDouble } from '../../fixtures/host-double/host-double.ts';
import { tokenOf } from '../fixture-issuer.ts';
import { api } from '../harness/api.ts';
import { connectFakeHost } from '../harness/fake-host.ts';
import { ORIGIN } from '../issuer-bindings.ts';

let hosts: HostDouble[];
let isOver: boolean;
beforeEach(async () => {
  isOver = false;
  hosts = await Promise.all(Array.from({ length: MANY_HOSTS }, () => connectFakeHost()));
});
afterEach(() => {
  isOver = true;
  vi.restoreAllMocks();
  for (const host of hosts) host.close();
});

const create = async () => api('POST', '/v1/sessions', { token: await tokenOf(), body: {} });

test('a create whose client leaves as it asks for the picture of its pool leaves no other waiting', async () => {
  // The pool tells how many hosts it has.
  expect((await create()).status).toBe(201);
  const asked = vi.spyOn(PoolObject.prototype, 'picture').mockImplementationOnce(async () => {
    while (!isOver) await scheduler.wait(10);
    return success([]);
  });
  const leaving = new AbortController();
  const request = new Request(`${ORIGIN}/v1/sessions`, {
    method: 'POST',
    headers: { authorization: `Bearer ${await tokenOf()}`, 'content-type': 'application/json' },
    body: '{}',
    signal: leaving.signal,
  });
  const left = exports.default.fetch(request).catch(() => 'left');
  await expect.poll(() => asked.mock.calls.length).toBe(1);
  leaving.abort();
  expect(await left).toBe('left');
  const others = await Promise.all([create(), create(), create()]);
  expect(others.map(({ status }) => status)).toEqual([201, 201, 201]);
  // One of them asked for another; alone each would have.
  expect(asked.mock.calls.length).toBeLessThan(4);
}, 30_000);
