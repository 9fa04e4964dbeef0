/** The catalogue of a tenant asks for the operator's tools once for all who come meanwhile: the first of them may be cut off. */
import { exports } from 'cloudflare:workers';
import { afterEach, expect, test, vi } from 'vitest';
import { CatalogueObject } from '../../../../worker/objects/catalogue/object.ts';
import { tokenOf } from '../../fixture-issuer.ts';
import { api } from '../../harness/api.ts';
import { ORIGIN } from '../../issuer-bindings.ts';

afterEach(() => {
  vi.restoreAllMocks();
});

test('a list whose client leaves as the tools of the operator are asked for leaves no other waiting', async () => {
  const token = await tokenOf({ claims: { tenant: 'left-alone' } });
  let isLate = true;
  const asked = vi.spyOn(CatalogueObject.prototype, 'shared').mockImplementation(async () => {
    while (isLate) await scheduler.wait(10);
    return { ok: true, value: { revision: '', tools: null } };
  });
  const leaving = new AbortController();
  const headers = { authorization: `Bearer ${token}` };
  const request = new Request(`${ORIGIN}/v1/tools`, { headers, signal: leaving.signal });
  const left = exports.default.fetch(request).catch(() => 'left');
  await expect.poll(() => asked.mock.calls.length).toBe(1);
  leaving.abort();
  expect(await left).toBe('left');
  const others = [1, 2, 3].map(() => api('GET', '/v1/tools', { token }));
  isLate = false;
  expect((await Promise.all(others)).map(({ status }) => status)).toEqual([200, 200, 200]);
  expect(asked.mock.calls.length).toBe(1);
});
