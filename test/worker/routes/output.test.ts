/** Long outputs by the front door: kept beyond what a result holds, read in ranges, counted, cut at limits, and removed. */
import { evictDurableObject, runDurableObjectAlarm, runInDurableObject } from 'cloudflare:test';
import { env } from 'cloudflare:workers';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { sha256Hex } from '../../../shared/digest.ts';
import { fromHex, toBase64 } from '../../../shared/encoding.ts';
import { type Execution, ExecutionSchema } from '../../../shared/execution.ts';
import { SessionSchema } from '../../../shared/session.ts';
import { UsageReportSchema } from '../../../shared/tenant.ts';
import { sessionObjectName } from '../../../worker/objects/session-name.ts';
import { ExecutionListSchema } from '../../../worker/routes/executions.ts';
import { echo, type HostDouble, type Script } from '../../fixtures/host-double/host-double.ts';
import { nowS, tokenOf } from '../fixture-issuer.ts';
import { type ApiOptions, api, problemIn, request } from '../harness/api.ts';
import { eventually } from '../harness/eventually.ts';
import { connectFakeHost } from '../harness/fake-host.ts';
import { OPERATOR_TOKEN } from '../issuer-bindings.ts';

const operator = { token: OPERATOR_TOKEN };
const MIB = 1024 * 1024;

/** `print 5000000 7` writes so many bytes to stdout and to stderr; `print-and-hold` is then interrupted. */
const script: Script = async (execution, session) => {
  const command = String(execution.arguments.command);
  const [, kind, stdout = '0', stderr = '0'] = /^(print|print-and-hold) (\d+) (\d+)$/.exec(command) ?? [];
  if (kind === undefined) return echo(execution, session);
  execution.started();
  await execution.write('stdout', lines(Number(stdout), 'out'));
  await execution.write('stderr', lines(Number(stderr), 'err'));
  if (kind === 'print') return execution.finish();
  await execution.interrupted;
  return execution.finish({ status: 'interrupted', exit_code: null });
};

/** Numbered lines: a byte in the wrong place shows. */
function lines(bytes: number, word: string): Uint8Array<ArrayBuffer> {
  const text: string[] = [];
  for (let at = 0, number = 0; at < bytes; number += 1) {
    const line = `${word} ${number}\n`;
    text.push(line);
    at += line.length;
  }
  return new Uint8Array(new TextEncoder().encode(text.join('')).subarray(0, bytes));
}

/** The difference between megabytes would be printed for minutes. */
function expectSame(bytes: Uint8Array, wanted: Uint8Array): void {
  expect(bytes.length).toBe(wanted.length);
  expect(bytes.findIndex((byte, at) => byte !== wanted[at])).toBe(-1);
}

let host: HostDouble;
beforeEach(async () => {
  host = await connectFakeHost({ script, capacity: 100 });
  host.protocol = 2;
});
afterEach(() => {
  vi.useRealTimers();
  expect(host.failures).toEqual([]);
  host.close();
});

let tenants = 0;
interface Tenant {
  name: string;
  token: string;
}

async function tenantWith(limits?: object): Promise<Tenant> {
  tenants += 1;
  const name = `printing-${tenants}`;
  if (limits !== undefined) await api('PUT', `/v1/tenants/${name}/limits`, { ...operator, body: limits });
  return { name, token: await tokenOf({ claims: { tenant: name, exp: nowS() + 3_600 } }) };
}

async function open({ token }: Tenant): Promise<string> {
  return SessionSchema.parse((await api('POST', '/v1/sessions', { token, body: {} })).json).session_id;
}

async function run(
  { token }: Tenant,
  sessionId: string,
  command: string,
  more: object = {},
): Promise<Execution> {
  const body = { tool_name: 'shell', arguments: { command }, ...more };
  const answer = await api('POST', `/v1/sessions/${sessionId}/execute`, { token, body });
  expect(answer.status, answer.text).toBeLessThan(300);
  return ExecutionSchema.parse(answer.json);
}

async function read({ token }: Tenant, url: string | undefined, options: ApiOptions = {}) {
  const response = await request('GET', url ?? '', { token, ...options });
  return { response, bytes: new Uint8Array(await response.arrayBuffer()) };
}

async function keysOf({ name }: Tenant): Promise<string[]> {
  return (await env.CONTENT.list({ prefix: `outputs/${name}/` })).objects.map(({ key }) => key);
}

async function storedBytes({ token }: Tenant): Promise<number> {
  return UsageReportSchema.parse((await api('GET', '/v1/usage', { token })).json).now.storage_bytes;
}

const stubOf = ({ name }: Tenant, sessionId: string) =>
  env.SESSION.get(env.SESSION.idFromName(sessionObjectName(name, sessionId)));

/** Chunks go to R2 behind the answer. */
async function allInR2(tenant: Tenant, bytes: number): Promise<void> {
  await eventually(async () => {
    const { objects } = await env.CONTENT.list({ prefix: `outputs/${tenant.name}/` });
    const sealed = objects.reduce((sum, { size }) => sum + size - 28, 0);
    expect(sealed).toBe(bytes);
  });
}

describe('output beyond what a result holds', () => {
  test('is kept whole: its digest is that of the receipt, and any range of it can be read', async () => {
    const tenant = await tenantWith();
    const sessionId = await open(tenant);
    const done = await run(tenant, sessionId, `print ${6 * MIB + 11} ${2 * MIB}`);
    expect(done.truncated).toBe(true);
    const whole = lines(6 * MIB + 11, 'out');
    const url = `/v1/sessions/${sessionId}/executions/${done.execution_id}/output/stdout`;
    expect(done.output?.stdout).toEqual({
      bytes: whole.length,
      stored_bytes: whole.length,
      sha256: await sha256Hex(whole),
      url,
    });
    expect(done.output?.stderr).toMatchObject({ bytes: 2 * MIB, stored_bytes: 2 * MIB });
    for (const moment of ['while it is on its way', 'in R2'] as const) {
      if (moment === 'in R2') await allInR2(tenant, whole.length + 2 * MIB);
      const { response, bytes } = await read(tenant, url);
      expect(response.status).toBe(200);
      expect(response.headers.get('Sandgate-Written-Bytes')).toBe(String(whole.length));
      const digest = `sha-256=:${toBase64(fromHex(await sha256Hex(whole)))}:`;
      expect(response.headers.get('Repr-Digest')).toBe(digest);
      expect(await sha256Hex(bytes)).toBe(done.output?.stdout?.sha256);
      for (const [first, last] of [
        [0, 9],
        [512 * 1024 - 5, 512 * 1024 + 5],
        [MIB - 3, 3 * MIB + 3],
        [whole.length - 1, whole.length - 1],
      ] as const) {
        const part = await read(tenant, url, { headers: { Range: `bytes=${first}-${last}` } });
        expect(part.response.status).toBe(206);
        expectSame(part.bytes, whole.subarray(first, last + 1));
      }
    }
    const shown = await api('GET', url.replace('/output/stdout', ''), { token: tenant.token });
    expect(ExecutionSchema.parse(shown.json).output).toEqual(done.output);
  });

  test('is not stored in the clear, and not for an output that fits its result', async () => {
    const tenant = await tenantWith();
    const sessionId = await open(tenant);
    const short = await run(tenant, sessionId, `print ${MIB} 0`);
    expect(short.output).toBeUndefined();
    const url = `/v1/sessions/${sessionId}/executions/${short.execution_id}/output/stdout`;
    expectSame((await read(tenant, url)).bytes, lines(MIB, 'out'));
    const none = await read(tenant, url.replace('stdout', 'stderr'));
    expect([none.response.status, none.bytes.length]).toEqual([200, 0]);
    expect(await keysOf(tenant)).toEqual([]);
    await run(tenant, sessionId, `print ${2 * MIB} 0`);
    await allInR2(tenant, 2 * MIB);
    const [key = ''] = await keysOf(tenant);
    const sealed = new Uint8Array((await (await env.CONTENT.get(key))?.arrayBuffer()) ?? new ArrayBuffer(0));
    expect(new TextDecoder().decode(sealed)).not.toContain('out 1');
  });

  test.each([
    ['streamed', {}, { Accept: 'text/event-stream' }],
    ['detached', { detach: true }, {}],
  ])('is kept of a %s call too', async (_, how, headers) => {
    const tenant = await tenantWith();
    const sessionId = await open(tenant);
    const path = `/v1/sessions/${sessionId}`;
    const begun = await request('POST', `${path}/execute`, {
      token: tenant.token,
      headers: new Headers(headers),
      body: { tool_name: 'shell', arguments: { command: `print ${5 * MIB} 0` }, ...how },
    });
    await begun.text();
    const latest = await eventually(async () => {
      const { json } = await api('GET', `${path}/executions`, { token: tenant.token });
      const [execution] = ExecutionListSchema.parse(json).executions;
      expect(execution).toMatchObject({ status: 'succeeded' });
      return execution;
    });
    const url = `${path}/executions/${latest?.execution_id}/output/stdout`;
    expect(latest?.output?.stdout).toMatchObject({ stored_bytes: 5 * MIB, url });
    expectSame((await read(tenant, url)).bytes, lines(5 * MIB, 'out'));
  });

  test('can be read while the program runs, also after an eviction in the middle, and is whole in the end', async () => {
    const tenant = await tenantWith();
    const sessionId = await open(tenant);
    const { execution_id: id } = await run(tenant, sessionId, `print-and-hold ${6 * MIB} 0`, {
      detach: true,
    });
    const url = `/v1/sessions/${sessionId}/executions/${id}/output/stdout`;
    const whole = lines(6 * MIB, 'out');
    await eventually(async () => {
      const { response, bytes } = await read(tenant, url);
      expect(response.headers.has('Repr-Digest')).toBe(false);
      expect(bytes.length).toBe(whole.length);
    });
    await evictDurableObject(stubOf(tenant, sessionId));
    const interrupt = { token: tenant.token, body: { execution_id: id } };
    expect((await api('POST', `/v1/sessions/${sessionId}/interrupt`, interrupt)).status).toBe(200);
    await eventually(async () => {
      const now = await api('GET', url.replace('/output/stdout', ''), { token: tenant.token });
      expect(ExecutionSchema.parse(now.json).output?.stdout).toMatchObject({ stored_bytes: whole.length });
    });
    await allInR2(tenant, whole.length);
    expect(await sha256Hex((await read(tenant, url)).bytes)).toBe(await sha256Hex(whole));
  });

  test('of a host that does not know of it is head and tail, as before', async () => {
    host.protocol = 1;
    const tenant = await tenantWith();
    const done = await run(tenant, await open(tenant), `print ${3 * MIB} 0`);
    expect(done).toMatchObject({ truncated: true, stdout_bytes: 3 * MIB });
    expect(done.output?.stdout).toMatchObject({ bytes: 3 * MIB, sha256: null });
    expect(await keysOf(tenant)).toEqual([]);
  });

  test('of what is not there is missing', async () => {
    const tenant = await tenantWith();
    const sessionId = await open(tenant);
    const done = await run(tenant, sessionId, 'short');
    const path = `/v1/sessions/${sessionId}/executions/${done.execution_id}/output`;
    for (const stream of ['stdin', 'x', '..']) {
      const answer = await api('GET', `${path}/${stream}`, { token: tenant.token });
      expect(answer.status).toBe(404);
    }
    const beyond = await api('GET', `${path}/stdout`, {
      token: tenant.token,
      headers: { Range: 'bytes=5-' },
    });
    expect(problemIn(beyond).code).toBe('range_not_satisfiable');
  });
});

describe('the storage of a tenant', () => {
  test('counts what is stored of outputs, and has it back when the session is over', async () => {
    const tenant = await tenantWith();
    const sessionId = await open(tenant);
    await run(tenant, sessionId, `print ${5 * MIB} 0`);
    await allInR2(tenant, 5 * MIB);
    await eventually(async () => {
      const { now } = UsageReportSchema.parse((await api('GET', '/v1/usage', { token: tenant.token })).json);
      expect(now.storage_bytes).toBe(5 * MIB);
    });
    expect((await api('DELETE', `/v1/sessions/${sessionId}`, { token: tenant.token })).status).toBe(204);
    vi.useFakeTimers({ toFake: ['Date'], now: Date.now() + 61_000 });
    await runDurableObjectAlarm(stubOf(tenant, sessionId));
    expect(await keysOf(tenant)).toEqual([]);
    vi.useRealTimers();
    expect(await storedBytes(tenant)).toBe(0);
  });

  test('is never passed: an output is cut where it is used up, and the result says so', async () => {
    const limit = 3 * MIB + 123;
    const tenant = await tenantWith({ tenant: { storage_bytes: limit } });
    const sessionId = await open(tenant);
    const done = await run(tenant, sessionId, `print ${6 * MIB} 0`);
    expect(done).toMatchObject({ status: 'succeeded', stdout_bytes: 6 * MIB });
    expect(done.output?.stdout).toMatchObject({ bytes: 6 * MIB, stored_bytes: limit, sha256: null });
    await allInR2(tenant, limit);
    const { response, bytes } = await read(tenant, done.output?.stdout?.url);
    expectSame(bytes, lines(6 * MIB, 'out').subarray(0, limit));
    expect(response.headers.get('Sandgate-Written-Bytes')).toBe(String(6 * MIB));
    expect(response.headers.has('Repr-Digest')).toBe(false);
  });

  test('has the bytes of an output back when its session has a budget that it would pass', async () => {
    const tenant = await tenantWith({ session: { storage_bytes: 2 * MIB } });
    const done = await run(tenant, await open(tenant), `print ${4 * MIB} 0`);
    expect(done.output?.stdout).toMatchObject({ stored_bytes: 2 * MIB });
  });
});

describe('a storage that does not answer', () => {
  test('holds no result up, and what waits for it is readable and goes there later', async () => {
    const put = vi.spyOn(env.CONTENT, 'put').mockRejectedValue(new Error('down'));
    const tenant = await tenantWith();
    const sessionId = await open(tenant);
    const done = await run(tenant, sessionId, `print ${5 * MIB} 0`);
    expect(done.output?.stdout).toMatchObject({ stored_bytes: 5 * MIB });
    await eventually(() => expect(put).toHaveBeenCalled());
    expectSame((await read(tenant, done.output?.stdout?.url)).bytes, lines(5 * MIB, 'out'));
    expect(await keysOf(tenant)).toEqual([]);
    put.mockRestore();
    vi.useFakeTimers({ toFake: ['Date'], now: Date.now() + 10_000 });
    await runDurableObjectAlarm(stubOf(tenant, sessionId));
    vi.useRealTimers();
    await allInR2(tenant, 5 * MIB);
  });
});

test('a long output goes to its storage once no other program of its session writes much', async () => {
  const put = vi.spyOn(env.CONTENT, 'put').mockRejectedValue(new Error('down'));
  const tenant = await tenantWith();
  const sessionId = await open(tenant);
  await run(tenant, sessionId, `print ${5 * MIB} 0`);
  await eventually(() => expect(put).toHaveBeenCalled());
  put.mockClear();
  put.mockRestore();
  // The time moves by the steps below alone (to wait moves it, too): where it really passes, no look comes between them.
  const startedAtMs = Date.now();
  vi.useFakeTimers({ toFake: ['Date'], now: startedAtMs });
  const writing = await run(tenant, sessionId, `print-and-hold ${9 * MIB} 0`, {
    detach: true,
    timeout_ms: 600_000,
  });
  const url = `/v1/sessions/${sessionId}/executions/${writing.execution_id}/output/stdout`;
  await eventually(async () => {
    vi.setSystemTime(startedAtMs);
    const { response } = await read(tenant, url, { headers: { Range: 'bytes=0-0' } });
    expect(Number(response.headers.get('Sandgate-Written-Bytes'))).toBeGreaterThan(8 * MIB);
  });
  const stub = stubOf(tenant, sessionId);
  const alarmAtMs = () => runInDurableObject(stub, (_, { storage }) => storage.getAlarm());

  vi.setSystemTime(startedAtMs + 35_000);
  await runDurableObjectAlarm(stub);
  // It is looked at again soon, and not stored.
  await eventually(async () => {
    vi.setSystemTime(startedAtMs + 35_000);
    const inMs = Number(await alarmAtMs()) - Date.now();
    expect(inMs).toBeGreaterThan(-500);
    expect(inMs).toBeLessThanOrEqual(1_000);
  });
  expect(await keysOf(tenant)).toEqual([]);

  vi.setSystemTime(Date.now() + 1_000);
  await runDurableObjectAlarm(stub);
  vi.useRealTimers();
  await allInR2(tenant, 5 * MIB);
  await api('POST', `/v1/sessions/${sessionId}/interrupt`, { token: tenant.token, body: {} });
});
