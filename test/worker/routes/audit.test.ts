import { env } from 'cloudflare:workers';
import { describe, expect, test, vi } from 'vitest';
import { AuditPageSchema } from '../../../shared/audit.ts';
import { tokenOf } from '../fixture-issuer.ts';
import { api, problemIn } from '../harness/api.ts';
import { eventually } from '../harness/eventually.ts';
import { OPERATOR_TOKEN } from '../issuer-bindings.ts';

const operator = { token: OPERATOR_TOKEN };

async function acts(query = '') {
  return AuditPageSchema.parse((await api('GET', `/v1/audit${query}`, operator)).json);
}

describe('the audit log', () => {
  test('has every act of an operator with its target, its request and how it ended', async () => {
    const body = { tenant: { concurrent_sessions: 3 } };
    const done = await api('PUT', '/v1/tenants/audited/limits', { ...operator, body });
    const refused = await api('POST', '/v1/tenants/-/status', { ...operator, body: { disabled: true } });
    expect([done.status, refused.status]).toEqual([200, 404]);
    await eventually(async () => {
      const [last, first] = (await acts('?limit=2')).entries;
      expect(first).toMatchObject({
        operation: 'setTenantLimits',
        target: { tenant: 'audited' },
        request_id: done.headers.get('Request-Id'),
        status: 200,
        code: null,
      });
      expect(JSON.parse(first?.body ?? '')).toMatchObject(body);
      expect(last).toMatchObject({ operation: 'setTenantStatus', status: 404, code: 'not_found' });
      expect(first?.actor).toMatch(/^operator:[0-9a-f]{8}$/);
    });
  });

  test('never holds what an act gave: an enrolment token is not in it', async () => {
    const made = await api('POST', '/v1/enrollment-tokens', { ...operator, body: {} });
    expect(made.status).toBe(201);
    const page = await acts();
    expect(page.entries[0]?.operation).toBe('createEnrollmentToken');
    expect(JSON.stringify(page)).not.toMatch(/enr_/);
    expect(JSON.stringify(page)).not.toContain(OPERATOR_TOKEN);
  });

  test('is read in pages without gap or repeat, and reading is no act', async () => {
    for (let n = 0; n < 5; n += 1) {
      await api('POST', '/v1/tenants/paged/revoked-tokens', { ...operator, body: { jti: `t${n}` } });
    }
    const numbers: number[] = [];
    let cursor: string | null = '';
    while (cursor !== null) {
      const page: Awaited<ReturnType<typeof acts>> = await acts(
        `?limit=2${cursor === '' ? '' : `&cursor=${cursor}`}`,
      );
      numbers.push(...page.entries.map(({ n }) => n));
      cursor = page.next_cursor;
    }
    expect(numbers).toEqual(Array.from({ length: numbers.length }, (_, index) => numbers.length - index));
    expect((await acts('?limit=1')).entries[0]?.n).toBe(numbers.length);
  });

  test('is for operators, and takes no act of anybody else', async () => {
    const before = (await acts('?limit=1')).entries[0]?.n ?? 0;
    const token = await tokenOf();
    expect(problemIn(await api('GET', '/v1/audit', { token })).code).toBe('forbidden');
    const body = { disabled: true };
    expect((await api('POST', '/v1/tenants/acme/status', { token, body })).status).toBe(403);
    expect((await api('POST', '/v1/tenants/acme/status', { body })).status).toBe(401);
    expect((await acts('?limit=1')).entries[0]?.n ?? 0).toBe(before);
  });

  test('comes first: what cannot be written there is not done', async () => {
    const broken = vi.spyOn(env.AUDIT, 'getByName').mockImplementation(() => {
      throw Object.assign(new Error('full'), { overloaded: true });
    });
    const body = { disabled: true };
    const answer = await api('POST', '/v1/tenants/untouched/status', { ...operator, body });
    broken.mockRestore();
    expect(problemIn(answer)).toMatchObject({ status: 503, code: 'overloaded' });
    const status = await api('GET', '/v1/tenants/untouched', operator);
    expect(status.json).toMatchObject({ disabled: false });
  });
});
