import { runDurableObjectAlarm, runInDurableObject } from 'cloudflare:test';
import { env } from 'cloudflare:workers';
import { afterAll, afterEach, beforeAll, describe, expect, test, vi } from 'vitest';
import { ProgramSchema } from '../../../shared/code-mode.ts';
import { ExecutionSchema } from '../../../shared/execution.ts';
import { SessionSchema } from '../../../shared/session.ts';
import { SnapshotSchema } from '../../../shared/snapshot-resource.ts';
import { UsageReportSchema } from '../../../shared/tenant.ts';
import { sessionObjectName } from '../../../worker/objects/session-name.ts';
import { echo, type HostDouble, type Script } from '../../fixtures/host-double/host-double.ts';
import { nowS, tokenOf } from '../fixture-issuer.ts';
import { type ApiAnswer, type ApiOptions, api, problemIn } from '../harness/api.ts';
import { eventually } from '../harness/eventually.ts';
import { connectFakeHost } from '../harness/fake-host.ts';
import { OPERATOR_TOKEN } from '../issuer-bindings.ts';

const operator = { token: OPERATOR_TOKEN };

/** `hold` runs until it is interrupted, `ask` too, and asks for 2,000 bytes first; `use 2000 50` is signed as 2,000 ms of CPU time and 50 bytes of egress. */
const script: Script = async (execution, session) => {
  const command = String(execution.arguments.command ?? execution.arguments.code);
  if (command === 'hold' || command === 'ask') {
    execution.started();
    if (command === 'ask') execution.call(1, 'people.ask', { question: 'x'.repeat(2_000) });
    await execution.interrupted;
    return execution.finish({ status: 'interrupted', exit_code: null });
  }
  const [, cpuMs, egressBytes] = /^use (\d+) (\d+)$/.exec(command) ?? [];
  if (cpuMs === undefined) return echo(execution, session);
  execution.started();
  const used = { cpu_ms: Number(cpuMs), egress_bytes: Number(egressBytes) };
  return execution.finish({ receipt: (receipt) => ({ ...receipt, usage: { ...receipt.usage, ...used } }) });
};

let host: HostDouble;
beforeAll(async () => {
  host = await connectFakeHost({ script, capacity: 10_000 });
});
afterEach(() => {
  vi.restoreAllMocks();
  vi.useRealTimers();
  expect(host.failures).toEqual([]);
});
afterAll(() => {
  host.close();
});

let tenants = 0;
interface Tenant {
  name: string;
  token: string;
  as: (subject: string) => Promise<string>;
}

/** A tenant of its own for each test. */
async function tenantWith(limits: object): Promise<Tenant> {
  tenants += 1;
  const name = `limited-${tenants}`;
  const set = await api('PUT', `/v1/tenants/${name}/limits`, { ...operator, body: limits });
  expect(set.status, set.text).toBe(200);
  const as = (sub: string) => tokenOf({ claims: { tenant: name, sub, exp: nowS() + 3_600 } });
  return { name, token: await as('alice'), as };
}

const create = (token: string, options: ApiOptions = {}) =>
  api('POST', '/v1/sessions', { token, body: {}, ...options });

async function open(token: string): Promise<string> {
  const answer = await create(token);
  expect(answer.status, answer.text).toBe(201);
  return SessionSchema.parse(answer.json).session_id;
}

function run(token: string, sessionId: string, command: string, more: object = {}): Promise<ApiAnswer> {
  const { headers, ...body } = { headers: {}, ...more };
  return api('POST', `/v1/sessions/${sessionId}/execute`, {
    token,
    headers,
    body: { tool_name: 'shell', arguments: { command }, ...body },
  });
}

async function register(token: string, tool: object): Promise<void> {
  const body = { description: 'A tool', input_schema: { type: 'object' }, ...tool };
  const registered = await api('POST', '/v1/tools', { token, body });
  expect(registered.status, registered.text).toBe(201);
}

const hold = (token: string, sessionId: string) => run(token, sessionId, 'hold', { detach: true });

async function endOf(token: string, sessionId: string): Promise<void> {
  await api('POST', `/v1/sessions/${sessionId}/interrupt`, { token });
  await eventually(async () => {
    const session = SessionSchema.parse((await api('GET', `/v1/sessions/${sessionId}`, { token })).json);
    expect(session.executions).toMatchObject({ queued: 0, running: 0 });
  });
}

async function usageOf(tenant: Tenant) {
  const answer = await api('GET', '/v1/usage', { token: tenant.token });
  return UsageReportSchema.parse(answer.json);
}

describe('concurrent sessions', () => {
  test('A32: of 1,000 creates at once exactly as many succeed as there may be, and the rest say why', async () => {
    const { token } = await tenantWith({ tenant: { concurrent_sessions: 7 } });
    const answers = await Promise.all(Array.from({ length: 1_000 }, () => create(token)));
    const made = answers.filter(({ status }) => status === 201);
    expect(made).toHaveLength(7);
    for (const refused of answers.filter((answer) => answer.status !== 201)) {
      expect(problemIn(refused)).toMatchObject({
        status: 429,
        code: 'quota_exceeded',
        limit: { name: 'concurrent_sessions', scope: 'tenant', limit: 7, used: 7, resets_at: null },
      });
    }
    const refused = answers.find(({ status }) => status === 429);
    expect(refused?.headers.get('Retry-After')).toBe('1');
    expect(refused?.headers.get('RateLimit')).toMatch(
      /^"tenant";r=\d+;t=\d+, "concurrent_sessions";r=0;t=1$/,
    );
    expect(refused?.headers.get('RateLimit-Policy')).toContain('"concurrent_sessions";q=7');
    // A place that is given back is one place.
    const { session_id: over } = SessionSchema.parse(made[0]?.json);
    expect((await api('DELETE', `/v1/sessions/${over}`, { token })).status).toBe(204);
    const next = await Promise.all(Array.from({ length: 10 }, () => create(token)));
    expect(next.filter(({ status }) => status === 201)).toHaveLength(1);
  });

  test('one session that is asked for ten times with a key takes one place', async () => {
    const { token } = await tenantWith({ tenant: { concurrent_sessions: 2 } });
    const headers = { 'Idempotency-Key': 'once' };
    const answers = await Promise.all(Array.from({ length: 10 }, () => create(token, { headers })));
    expect(answers.map(({ status }) => status)).toEqual(Array(10).fill(201));
    expect((await create(token)).status).toBe(201);
    expect((await create(token)).status).toBe(429);
  });

  test('of each subject are counted for it, and a subject that is named has its own number', async () => {
    const tenant = await tenantWith({
      subject: { concurrent_sessions: 1 },
      subjects: { carol: { concurrent_sessions: 2 } },
    });
    const [alice, bob, carol] = await Promise.all(['alice', 'bob', 'carol'].map(tenant.as));
    for (const token of [alice, bob, carol, carol]) expect((await create(token ?? '')).status).toBe(201);
    for (const token of [alice, bob, carol]) {
      const refused = problemIn(await create(token ?? ''));
      expect(refused.limit).toMatchObject({ name: 'concurrent_sessions', scope: 'subject' });
    }
  });

  test('a create that no host takes gives its place back', async () => {
    const { token, name } = await tenantWith({ tenant: { concurrent_sessions: 1 } });
    const nowhere = await create(token, { body: { image: 'nowhere' } });
    expect(problemIn(nowhere).code).toBe('image_not_found');
    host.refuseAttach = 'host_full';
    expect(problemIn(await create(token)).code).toBe('host_full');
    host.refuseAttach = undefined;
    await eventually(async () => {
      const report = await env.TENANT.getByName(name).usage(name, { from: '2000-01-01', to: '2100-01-01' });
      expect(report).toMatchObject({ value: { now: { concurrent_sessions: 0 } } });
    });
    expect((await create(token)).status).toBe(201);
  });
});

describe('concurrent executions', () => {
  test('of fifty at once exactly as many are taken in as there may be, and one more when one has ended', async () => {
    const { token } = await tenantWith({ tenant: { concurrent_executions: 3 } });
    const sessions = await Promise.all(Array.from({ length: 5 }, () => open(token)));
    const answers = await Promise.all(
      Array.from({ length: 50 }, (_, n) => hold(token, sessions[n % sessions.length] ?? '')),
    );
    const taken = answers.filter(({ status }) => status === 202);
    expect(taken).toHaveLength(3);
    for (const refused of answers.filter(({ status }) => status !== 202)) {
      expect(problemIn(refused).limit).toMatchObject({ name: 'concurrent_executions', limit: 3, used: 3 });
    }
    const { session_id: sessionId } = ExecutionSchema.parse(taken[0]?.json);
    await eventually(() => expect(host.session(sessionId).executions.size).toBeGreaterThan(0));
    await api('POST', `/v1/sessions/${sessionId}/interrupt`, { token });
    await eventually(async () => expect((await hold(token, sessionId)).status).toBe(202));
    expect((await hold(token, sessionId)).status).toBe(429);
  });

  test('of a subject are its own: a neighbour under the same tenant has as many', async () => {
    const tenant = await tenantWith({ subject: { concurrent_executions: 1 } });
    const bob = await tenant.as('bob');
    const [first, second, bobs] = await Promise.all([open(tenant.token), open(tenant.token), open(bob)]);
    expect((await hold(tenant.token, first)).status).toBe(202);
    expect(problemIn(await hold(tenant.token, second)).limit).toMatchObject({
      name: 'concurrent_executions',
      scope: 'subject',
      limit: 1,
      used: 1,
    });
    expect((await hold(bob, bobs)).status).toBe(202);
    await endOf(tenant.token, first);
    expect((await hold(tenant.token, second)).status).toBe(202);
    await Promise.all([endOf(tenant.token, second), endOf(bob, bobs)]);
  });

  test('a hundred equal calls with one key are one, also where one is all there may be', async () => {
    const { token } = await tenantWith({ tenant: { concurrent_executions: 1 } });
    const sessionId = await open(token);
    const headers = { 'Idempotency-Key': 'the-one' };
    const answers = await Promise.all(
      Array.from({ length: 100 }, () => run(token, sessionId, 'hello', { headers })),
    );
    expect(answers.map(({ status }) => status)).toEqual(Array(100).fill(200));
    expect(new Set(answers.map(({ text }) => text)).size).toBe(1);
    expect(host.session(sessionId).executions.size).toBe(1);
    // What their admissions took is given back.
    await eventually(async () => expect((await run(token, sessionId, 'next')).status).toBe(200));
  });

  test('a limit that is set later is told to sessions that are there, though none of them asks', async () => {
    const tenant = await tenantWith({});
    const [first, second] = [await open(tenant.token), await open(tenant.token)];
    const body = { tenant: { concurrent_executions: 1 } };
    await api('PUT', `/v1/tenants/${tenant.name}/limits`, { ...operator, body });
    for (const id of [first, second]) {
      const object = env.SESSION.get(env.SESSION.idFromName(sessionObjectName(tenant.name, id)));
      await eventually(async () =>
        expect(
          await runInDurableObject(object, (_object, { storage }) =>
            storage.sql.exec('SELECT limited, counted FROM account').one(),
          ),
        ).toEqual({ limited: 1, counted: 1 }),
      );
    }
    expect((await hold(tenant.token, first)).status).toBe(202);
    expect(problemIn(await hold(tenant.token, second)).code).toBe('quota_exceeded');
    await endOf(tenant.token, first);
  });

  test('a limit that is set later holds for sessions that are there, within a minute', async () => {
    const tenant = await tenantWith({});
    const [first, second] = [await open(tenant.token), await open(tenant.token)];
    expect((await run(tenant.token, first, 'x')).status).toBe(200);
    const body = { tenant: { concurrent_executions: 1 } };
    await api('PUT', `/v1/tenants/${tenant.name}/limits`, { ...operator, body });
    vi.useFakeTimers({ toFake: ['Date'], now: Date.now() + 60_000 });
    // The first call after that minute may be the one that learns of it.
    for (const id of [first, second]) await run(tenant.token, id, 'x');
    await eventually(async () => expect((await usageOf(tenant)).now.concurrent_executions).toBe(0));
    expect((await hold(tenant.token, first)).status).toBe(202);
    expect(problemIn(await hold(tenant.token, second)).code).toBe('quota_exceeded');
    await eventually(() => expect(host.session(first).executions.size).toBeGreaterThan(1));
    await endOf(tenant.token, first);
  });
});

describe('CPU time of a day', () => {
  test('is reserved by what a call may use, and settled by what its host signed', async () => {
    const tenant = await tenantWith({ tenant: { cpu_seconds_per_day: 10 } });
    const sessionId = await open(tenant.token);
    const long = await run(tenant.token, sessionId, 'use 1 0', { timeout_ms: 11_000 });
    expect(problemIn(long)).toMatchObject({
      code: 'quota_exceeded',
      detail: 'cpu_seconds_per_day of the tenant is 10: 0 are used, and this needs up to 11',
      limit: { name: 'cpu_seconds_per_day', scope: 'tenant', limit: 10, used: 0 },
    });
    const midnight = new Date(new Date().toISOString().slice(0, 10)).getTime() + 86_400_000;
    expect(problemIn(long).limit?.resets_at).toBe(new Date(midnight).toISOString());
    const untilMidnightS = Math.ceil((midnight - Date.now()) / 1_000);
    expect(Math.abs(Number(long.headers.get('Retry-After')) - untilMidnightS)).toBeLessThan(60);
    for (let n = 0; n < 4; n += 1) {
      const answer = await run(tenant.token, sessionId, 'use 2000 0', { timeout_ms: 3_000 });
      expect(answer.status, answer.text).toBe(200);
    }
    // 8 of 10 are used.
    const refused = problemIn(await run(tenant.token, sessionId, 'use 2000 0', { timeout_ms: 3_000 }));
    expect(refused.limit).toMatchObject({ limit: 10, used: 8 });
    expect((await run(tenant.token, sessionId, 'use 1 0', { timeout_ms: 2_000 })).status).toBe(200);
    expect((await usageOf(tenant)).days).toMatchObject([{ sessions: 1, executions: 4, cpu_seconds: 8 }]);
    vi.useFakeTimers({ toFake: ['Date'], now: midnight + 1_000 });
    const tomorrow = await tenant.as('alice');
    expect((await run(tomorrow, sessionId, 'use 2000 0', { timeout_ms: 9_000 })).status).toBe(200);
  });

  test('is not given twice: of calls at once only those begin whose worst case fits', async () => {
    const { token } = await tenantWith({ tenant: { cpu_seconds_per_day: 100 } });
    const sessions = await Promise.all(Array.from({ length: 6 }, () => open(token)));
    const answers = await Promise.all(sessions.map((id) => hold(token, id)));
    // Each may use 30 seconds.
    expect(answers.filter(({ status }) => status === 202)).toHaveLength(3);
    const refused = answers.find(({ status }) => status === 429);
    // What is only reserved may be free soon.
    expect(refused?.headers.get('Retry-After')).toBe('5');
  });
});

describe('what is counted after the fact', () => {
  test.each([
    ['egress_bytes_per_day', 'use 1 60'],
    ['cpu_seconds_per_day', 'use 100000 1'],
  ])('%s: the next call is refused once it is used up', async (name, command) => {
    const { token } = await tenantWith({ tenant: { [name]: 100 } });
    const sessionId = await open(token);
    const codes: number[] = [];
    for (let n = 0; n < 3; n += 1) codes.push((await run(token, sessionId, command)).status);
    expect(codes.at(-1)).toBe(429);
    expect(codes[0]).toBe(200);
    const neighbour = await tenantWith({ tenant: { [name]: 100 } });
    expect((await run(neighbour.token, await open(neighbour.token), command)).status).toBe(200);
  });

  test.each([
    ['egress_bytes_per_day', 'use 1 60'],
    ['cpu_seconds_per_day', 'use 100000 1'],
  ])(
    '%s of a subject: the next call is refused, and no neighbour under the same tenant',
    async (name, command) => {
      const tenant = await tenantWith({ subject: { [name]: 100 } });
      const sessionId = await open(tenant.token);
      const answers: ApiAnswer[] = [];
      for (let n = 0; n < 3; n += 1) answers.push(await run(tenant.token, sessionId, command));
      expect(answers[0]?.status).toBe(200);
      const [last] = answers.slice(-1);
      if (last === undefined) throw new Error('nothing was called');
      expect(problemIn(last)).toMatchObject({ status: 429, limit: { name, scope: 'subject', limit: 100 } });
      const bob = await tenant.as('bob');
      expect((await run(bob, await open(bob), command)).status).toBe(200);
    },
  );

  test('storage: a tenant over it creates and runs nothing until it has deleted some', async () => {
    const { token } = await tenantWith({ tenant: { storage_bytes: 1_000 } });
    const sessionId = await open(token);
    expect((await run(token, sessionId, 'x'.repeat(2_000))).status).toBe(200);
    const refused = problemIn(await run(token, sessionId, 'y'));
    expect(refused.limit).toMatchObject({ name: 'storage_bytes', limit: 1_000, used: 2_000 });
    expect(problemIn(await create(token)).limit?.name).toBe('storage_bytes');
    await api('DELETE', `/v1/sessions/${sessionId}`, { token });
    expect((await create(token)).status).toBe(201);
  });

  test('storage: what tools gave that the gateway calls itself counts too', async () => {
    const { token } = await tenantWith({ tenant: { storage_bytes: 1_000 } });
    await register(token, { kind: 'http', name: 'long', method: 'GET', url: 'https://long.example.com/' });
    const sessionId = await open(token);
    vi.spyOn(globalThis, 'fetch').mockImplementation(async () => new Response('x'.repeat(2_000)));
    expect((await run(token, sessionId, '', { tool_name: 'long', arguments: {} })).status).toBe(200);
    const refused = problemIn(await run(token, sessionId, 'y'));
    expect(refused.limit).toMatchObject({ name: 'storage_bytes', limit: 1_000 });
  });

  test('storage: what a program asked for and was answered counts while it runs', async () => {
    const { token } = await tenantWith({ tenant: { storage_bytes: 3_000 } });
    await register(token, { kind: 'client', name: 'people.ask' });
    const sessionId = await open(token);
    const begun = await api('POST', `/v1/sessions/${sessionId}/programs`, {
      token,
      body: { language: 'python', code: 'ask', detach: true },
    });
    const { program_id } = ProgramSchema.parse(begun.json);
    const ofProgram = `/v1/sessions/${sessionId}/programs/${program_id}`;
    const [call] = await eventually(async () => {
      const { pending } = ProgramSchema.parse((await api('GET', ofProgram, { token })).json);
      expect(pending).toHaveLength(1);
      return pending;
    });
    expect((await run(token, sessionId, 'y')).status).toBe(200);
    const results = [{ id: call?.id, structured: 'x'.repeat(2_000) }];
    await api('POST', `${ofProgram}/tool_results`, { token, body: { results, detach: true } });
    const refused = problemIn(await run(token, sessionId, 'y'));
    expect(refused.limit).toMatchObject({ name: 'storage_bytes', limit: 3_000 });
    await endOf(token, sessionId);
  });

  test('storage: a snapshot counts with what is stored of it, until its bytes are gone', async () => {
    const tenant = await tenantWith({});
    const { token } = tenant;
    const sessionId = await open(token);
    const keep = () => api('POST', `/v1/sessions/${sessionId}/snapshots`, { token, body: { name: 'kept' } });
    const kept = SnapshotSchema.parse((await keep()).json);
    expect(kept.stored_bytes).toBeGreaterThan(0);
    expect((await usageOf(tenant)).now.storage_bytes).toBe(kept.stored_bytes);
    const limits = { tenant: { storage_bytes: kept.stored_bytes } };
    await api('PUT', `/v1/tenants/${tenant.name}/limits`, { ...operator, body: limits });
    expect(problemIn(await keep())).toMatchObject({
      code: 'quota_exceeded',
      limit: { name: 'storage_bytes', limit: kept.stored_bytes, used: kept.stored_bytes },
    });
    await api('DELETE', `/v1/snapshots/${kept.snapshot_id}`, { token });
    await eventually(async () => {
      await runDurableObjectAlarm(env.SNAPSHOT_INDEX.get(env.SNAPSHOT_INDEX.idFromName(tenant.name)));
      expect((await usageOf(tenant)).now.storage_bytes).toBe(0);
    });
    expect((await keep()).status).toBe(201);
  });
});

describe('the budget of a session', () => {
  test('is for its life: what is over it is refused for good, and another session has its own', async () => {
    const { token } = await tenantWith({ session: { executions: 2, cpu_seconds: 60 } });
    const sessionId = await open(token);
    for (const command of ['a', 'b']) expect((await run(token, sessionId, command)).status).toBe(200);
    const refused = await run(token, sessionId, 'c');
    expect(problemIn(refused)).toMatchObject({
      status: 403,
      code: 'budget_exhausted',
      retryable: false,
      limit: { name: 'executions', scope: 'session', limit: 2, used: 2, resets_at: null },
    });
    expect(refused.headers.has('Retry-After')).toBe(false);
    const other = await open(token);
    expect((await run(token, other, 'use 45000 0')).status).toBe(200);
    expect(problemIn(await run(token, other, 'x')).limit).toMatchObject({ name: 'cpu_seconds', used: 45 });
  });

  test('has bytes of egress in it, of all of its calls', async () => {
    const { token } = await tenantWith({ session: { egress_bytes: 100 } });
    const sessionId = await open(token);
    for (let n = 0; n < 2; n += 1) expect((await run(token, sessionId, 'use 1 60')).status).toBe(200);
    expect(problemIn(await run(token, sessionId, 'x'))).toMatchObject({
      code: 'budget_exhausted',
      limit: { name: 'egress_bytes', scope: 'session', limit: 100, used: 120, resets_at: null },
    });
    expect((await run(token, await open(token), 'use 1 60')).status).toBe(200);
  });
});

describe('request rates', () => {
  test('a tenant has the rate that it was given', async () => {
    const { token } = await tenantWith({ tenant: { requests_per_minute: 5 } });
    const answers: ApiAnswer[] = [];
    for (let n = 0; n < 8; n += 1) answers.push(await api('GET', '/v1/sessions', { token }));
    expect(answers.filter(({ status }) => status === 200)).toHaveLength(5);
    const refused = answers.at(-1);
    if (refused === undefined) throw new Error('no answer');
    expect(problemIn(refused).limit).toMatchObject({
      name: 'requests_per_minute',
      scope: 'tenant',
      limit: 5,
    });
    expect(refused.headers.get('RateLimit')).toMatch(/^"tenant";r=0;t=\d+$/);
  });

  test('a subject that spent its own leaves its neighbours theirs', async () => {
    const tenant = await tenantWith({ subject: { requests_per_minute: 4 } });
    const [alice, bob] = [await tenant.as('alice'), await tenant.as('bob')];
    const spent: number[] = [];
    for (let n = 0; n < 7; n += 1) spent.push((await api('GET', '/v1/sessions', { token: alice })).status);
    expect(spent.filter((status) => status === 200)).toHaveLength(4);
    const refused = await api('GET', '/v1/sessions', { token: alice });
    expect(problemIn(refused).limit).toMatchObject({ scope: 'subject', limit: 4 });
    expect((await api('GET', '/v1/sessions', { token: bob })).status).toBe(200);
  });
});

describe('usage', () => {
  test('of a tenant without limits is told within half a minute, and at the end of a session', async () => {
    const tenant = await tenantWith({});
    const sessionId = await open(tenant.token);
    await run(tenant.token, sessionId, 'use 1500 10');
    await api('DELETE', `/v1/sessions/${sessionId}`, { token: tenant.token });
    const report = await usageOf(tenant);
    expect(report.days).toMatchObject([
      { sessions: 1, executions: 1, cpu_seconds: 1.5, egress_bytes: 10, output_bytes: 0 },
    ]);
    expect(report.now).toEqual({
      concurrent_sessions: 0,
      suspended_sessions: 0,
      concurrent_executions: 0,
      storage_bytes: 0,
      reserved_cpu_seconds: 0,
    });
    const seen = await api('GET', `/v1/tenants/${tenant.name}/usage`, operator);
    expect(seen.json).toEqual(report);
    const day = report.days[0]?.day ?? '';
    const bySubject = await api('GET', `/v1/tenants/${tenant.name}/usage/${day}`, operator);
    expect(bySubject.json).toMatchObject({ day, subjects: [{ subject: 'alice', cpu_seconds: 1.5 }] });
    expect(JSON.stringify((await usageOf(await tenantWith({}))).days)).toBe('[]');
  });

  test('is told by the alarm of a session that nobody calls any more', async () => {
    const tenant = await tenantWith({});
    const sessionId = await open(tenant.token);
    await run(tenant.token, sessionId, 'use 700 0');
    vi.useFakeTimers({ toFake: ['Date'], now: Date.now() + 31_000 });
    const stub = env.SESSION.get(env.SESSION.idFromName(sessionObjectName(tenant.name, sessionId)));
    expect(await runDurableObjectAlarm(stub)).toBe(true);
    expect((await usageOf(tenant)).days).toMatchObject([{ cpu_seconds: 0.7 }]);
  });

  test('needs its scope, and days that are days', async () => {
    const { name, token } = await tenantWith({});
    const without = await tokenOf({ claims: { tenant: name, scope: 'sessions:read' } });
    expect((await api('GET', '/v1/usage', { token: without })).status).toBe(403);
    expect((await api('GET', '/v1/usage?from=yesterday', { token })).status).toBe(400);
    const turned = await api('GET', '/v1/usage?from=2026-01-02&to=2026-01-01', { token });
    expect(problemIn(turned).violations?.[0]?.path).toBe('query.from');
    expect((await api('GET', `/v1/tenants/${name}/usage/today`, operator)).status).toBe(404);
  });
});

test.each([
  [{ tenant: { concurrent_sessions: -1 } }, 'body.tenant.concurrent_sessions'],
  [{ tenant: { sessions: 1 } }, 'body.tenant.sessions'],
  [{ session: { concurrent_sessions: 1 } }, 'body.session.concurrent_sessions'],
  [{ subject: { requests_per_minute: 0 } }, 'body.subject.requests_per_minute'],
])('limits that cannot be meant are refused: %j', async (body, path) => {
  const answer = await api('PUT', '/v1/tenants/acme/limits', { ...operator, body });
  expect(problemIn(answer).violations?.[0]?.path).toBe(path);
});
