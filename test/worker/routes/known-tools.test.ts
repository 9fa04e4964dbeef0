/** What calls see of a change to a tool: at once where it was made, and within a stated time everywhere else. */
import { env } from 'cloudflare:workers';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test, vi } from 'vitest';
import { RegisterToolSchema } from '../../../shared/registered-tool.ts';
import { SessionSchema } from '../../../shared/session.ts';
import { CatalogueObject } from '../../../worker/objects/catalogue/object.ts';
import { KNOWN_FOR_MS } from '../../../worker/tools/known-tools.ts';
import type { HostDouble } from '../../fixtures/host-double/host-double.ts';
import { ALL_SCOPES, tokenOf } from '../fixture-issuer.ts';
import { api, problemIn } from '../harness/api.ts';
import { connectFakeHost } from '../harness/fake-host.ts';

const TENANT = 'known-tools-tenant';
const TOOL = {
  name: 'count',
  description: 'Counts',
  category: 'math',
  kind: 'code',
  language: 'python',
  code: 'def main():\n    return 1\n',
  input_schema: { type: 'object' },
};
let host: HostDouble;
let sessionId: string;
let ran = 0;
/** Since the copies in this isolate hold no more when the clock jumps, each test has a time of its own. */
let nowMs = Date.now();

beforeAll(async () => {
  host = await connectFakeHost({
    script: async (execution) => {
      ran += 1;
      execution.started();
      execution.part('value', '1');
      await execution.finish();
    },
  });
  sessionId = SessionSchema.parse((await ask('POST', '/v1/sessions', {})).json).session_id;
});
beforeEach(() => {
  nowMs += 60_000;
  ran = 0;
  vi.useFakeTimers({ toFake: ['Date'], now: nowMs });
});
afterEach(() => {
  vi.useRealTimers();
  vi.restoreAllMocks();
});
afterAll(() => host.close());

async function ask(method: string, path: string, body?: object, scope = ALL_SCOPES) {
  const token = await tokenOf({ claims: { tenant: TENANT, sub: 'alice', scope } });
  return api(method, path, { token, ...(body === undefined ? {} : { body }) });
}

const call = (scope?: string) =>
  ask('POST', `/v1/sessions/${sessionId}/execute`, { tool_name: TOOL.name, arguments: {} }, scope);

async function register(more: object = {}): Promise<void> {
  const put = await ask('PUT', `/v1/tools/${TOOL.name}`, { ...TOOL, ...more });
  expect(put.status, put.text).toBeLessThan(300);
}

/** As a request does that comes to another isolate: nobody here hears of it. */
async function changeElsewhere(change: object | null): Promise<void> {
  const catalogue = env.CATALOGUE.getByName(TENANT);
  if (change === null) {
    expect(await catalogue.remove(TOOL.name)).toMatchObject({ ok: true });
    return;
  }
  const tool = RegisterToolSchema.parse({ ...TOOL, ...change });
  const put = await catalogue.put({ tool, credentials: null, fault: null, mode: 'replace' });
  expect(put).toMatchObject({ ok: true });
}

describe('a tool that was changed elsewhere', () => {
  test.each([
    ['disabled', { disabled: true }, 'tool_unavailable'],
    ['removed', null, 'tool_not_found'],
    ['one that needs another scope', { required_scopes: ['tools:shell'] }, 'tool_not_found'],
    ['called by programs only', { allowed_callers: ['code'] }, 'tool_unavailable'],
  ])('is %s for calls too, when the time is over', async (_name, change, code) => {
    await register();
    const scope = ALL_SCOPES.replace('tools:shell', '').replaceAll('  ', ' ');
    expect((await call(scope)).status).toBe(200);
    await changeElsewhere(change);
    vi.setSystemTime(nowMs + KNOWN_FOR_MS - 1);
    expect((await call(scope)).status).toBe(200);
    vi.setSystemTime(nowMs + KNOWN_FOR_MS);
    expect(problemIn(await call(scope)).code).toBe(code);
    expect(ran).toBe(2);
  });

  test('waits for its approval then', async () => {
    await register();
    expect((await call()).status).toBe(200);
    await changeElsewhere({ approval: 'required' });
    vi.setSystemTime(nowMs + KNOWN_FOR_MS);
    expect(await call()).toMatchObject({ status: 202, json: { status: 'waiting' } });
    expect(ran).toBe(1);
  });
});

describe('a tool that was changed here', () => {
  test('is what it is now for the very next call', async () => {
    await register();
    expect((await call()).status).toBe(200);
    await register({ disabled: true });
    expect(problemIn(await call()).code).toBe('tool_unavailable');
    await register();
    expect((await call()).status).toBe(200);
    expect((await ask('DELETE', `/v1/tools/${TOOL.name}`)).status).toBe(204);
    expect(problemIn(await call()).code).toBe('tool_not_found');
    await register();
    expect((await call()).status).toBe(200);
  });
});

test('the catalogue is asked once by all calls of that time', async () => {
  await register();
  const find = vi.spyOn(CatalogueObject.prototype, 'find');
  for (let n = 0; n < 20; n += 1) expect((await call()).status).toBe(200);
  expect(ran).toBe(20);
  expect(find).toHaveBeenCalledTimes(1);
  vi.setSystemTime(nowMs + KNOWN_FOR_MS);
  for (let n = 0; n < 20; n += 1) expect((await call()).status).toBe(200);
  expect(find).toHaveBeenCalledTimes(2);
});
