import { env } from 'cloudflare:workers';
import { afterEach, expect, test, vi } from 'vitest';
import { TenantListSchema } from '../../../worker/routes/tenants.ts';
import { tokenOf } from '../fixture-issuer.ts';
import { api } from '../harness/api.ts';
import { eventually } from '../harness/eventually.ts';
import { OPERATOR_TOKEN } from '../issuer-bindings.ts';

const operator = { token: OPERATOR_TOKEN };
afterEach(() => {
  vi.useRealTimers();
  vi.restoreAllMocks();
});

async function page(query = '') {
  return TenantListSchema.parse((await api('GET', `/v1/tenants${query}`, operator)).json);
}

async function names(): Promise<string[]> {
  return (await page('?limit=1000')).tenants.map(({ tenant }) => tenant);
}

const asks = async (tenant: string) =>
  api('GET', '/v1/sessions', { token: await tokenOf({ claims: { tenant } }) });

test('a tenant is listed once it has called, and looking at one is no call of it', async () => {
  await api('GET', '/v1/tenants/looked-at', operator);
  await api('GET', '/v1/tenants/looked-at/limits', operator);
  expect((await asks('calling')).status).toBe(200);
  await eventually(async () => expect(await names()).toContain('calling'));
  expect(await names()).not.toContain('looked-at');
});

test.each([
  ['PUT', 'limits', { tenant: { concurrent_sessions: 1 } }],
  ['POST', 'status', { disabled: true }],
  ['PUT', 'retention', { outputs_days: 1 }],
  ['POST', 'api-keys', { name: 'k', subject: 'alice', scopes: ['sessions:read'] }],
] as const)('%s of %s lists a tenant that never called', async (method, what, body) => {
  const tenant = `set-${what}`;
  const set = await api(method, `/v1/tenants/${tenant}/${what}`, { ...operator, body });
  expect(set.status, set.text).toBeLessThan(300);
  expect(await names()).toContain(tenant);
});

test('one that the index did not hear of is told to it by a later request, and no request fails for that', async () => {
  const broken = vi.spyOn(env.TENANT_INDEX, 'getByName').mockImplementation(() => {
    throw new Error('away');
  });
  expect((await asks('unheard')).status).toBe(200);
  broken.mockRestore();
  expect(await names()).not.toContain('unheard');
  // What was leased is over.
  vi.useFakeTimers({ toFake: ['Date'], now: Date.now() + 61_000 });
  expect((await asks('unheard')).status).toBe(200);
  await eventually(async () => expect(await names()).toContain('unheard'));
});

test('the list has pages in the order of names, without gap or repeat', async () => {
  for (const tenant of ['p-c', 'p-a', 'p-b']) await asks(tenant);
  await eventually(async () => expect(await names()).toEqual(expect.arrayContaining(['p-a', 'p-b', 'p-c'])));
  const seen: string[] = [];
  for (let cursor: string | null = ''; cursor !== null; ) {
    const next: Awaited<ReturnType<typeof page>> = await page(
      `?limit=2${cursor === '' ? '' : `&cursor=${cursor}`}`,
    );
    seen.push(...next.tenants.map(({ tenant }) => tenant));
    cursor = next.next_cursor;
  }
  expect(seen).toEqual((await names()).toSorted());
});

test('a token of a tenant may not read it', async () => {
  expect((await api('GET', '/v1/tenants', { token: await tokenOf() })).status).toBe(403);
});
