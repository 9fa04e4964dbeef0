import { afterEach, describe, expect, test, vi } from 'vitest';
import type * as z from 'zod';
import { ExecutionSchema } from '../../../shared/execution.ts';
import { RegisteredToolSchema } from '../../../shared/registered-tool.ts';
import { SharedToolListSchema } from '../../../worker/routes/operator-tools.ts';
import { ToolListSchema, ToolSearchSchema } from '../../../worker/routes/tools.ts';
import { ALL_SCOPES, tokenOf } from '../fixture-issuer.ts';
import { api, problemIn } from '../harness/api.ts';
import { OPERATOR_TOKEN } from '../issuer-bindings.ts';

const PATH = '/v1/operator/tools';
const operator = { token: OPERATOR_TOKEN };
const tokenFor = (tenant: string, scope = ALL_SCOPES) => tokenOf({ claims: { tenant, sub: 'alice', scope } });

afterEach(() => {
  vi.useRealTimers();
  vi.restoreAllMocks();
});

let aheadMs = 0;

/** When the catalogues of tenants take what they have for new no more. */
function later(): void {
  vi.useRealTimers();
  aheadMs += 31_000;
  vi.useFakeTimers({ toFake: ['Date'], now: Date.now() + aheadMs });
}

async function names(tenant: string, scope?: string): Promise<string[]> {
  const answer = await api('GET', '/v1/tools', { token: await tokenFor(tenant, scope) });
  return ToolListSchema.parse(answer.json).tools.map(({ name }) => name);
}

const WEATHER = {
  name: 'weather',
  description: 'The weather of a city',
  kind: 'http',
  url: 'https://api.example.com/v1/{city}',
  method: 'GET',
  credentials: { 'x-api-key': 'very-secret-key' },
  input_schema: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] },
};

describe('a tool of the operator', () => {
  test('is of all tenants: each finds and calls it by its scopes, and none changes it', async () => {
    expect(await names('acme')).not.toContain('weather');
    const made = await api('POST', PATH, { ...operator, body: WEATHER });
    expect(made.status, made.text).toBe(201);
    expect(made.text).not.toContain('very-secret-key');
    later();
    expect(await names('acme')).toContain('weather');
    expect(await names('globex')).toContain('weather');
    expect(await names('globex', 'tools:python')).not.toContain('weather');
    const token = await tokenFor('globex');
    const found = await api('GET', '/v1/tools/search?q=weather%20of%20a%20city', { token });
    expect(ToolSearchSchema.parse(found.json).tools[0]?.name).toBe('weather');
    const sent: (string | null)[] = [];
    vi.spyOn(globalThis, 'fetch').mockImplementation(async (input, init) => {
      sent.push(new Request(input, init).headers.get('x-api-key'));
      return Response.json({ sky: 'blue' });
    });
    const body = { tool_name: 'weather', arguments: { city: 'Rome' } };
    const called = await api('POST', '/v1/execute', { token, body });
    expect(ExecutionSchema.parse(called.json)).toMatchObject({
      status: 'succeeded',
      structured: { sky: 'blue' },
    });
    expect(sent).toEqual(['very-secret-key']);
    const shown = await api('GET', '/v1/tools/weather', { token });
    expect(RegisteredToolSchema.parse(shown.json)).toMatchObject({
      source: '*',
      credential_names: ['x-api-key'],
    });
    const put = await api('PUT', '/v1/tools/weather', {
      token,
      body: { kind: 'client', description: 'mine' },
    });
    expect(problemIn(put).code).toBe('source_owned');
    expect(problemIn(await api('DELETE', '/v1/tools/weather', { token })).code).toBe('source_owned');
  });

  test('follows each change, and goes when it is removed', async () => {
    const body = { kind: 'client', description: 'Asks a person' };
    expect((await api('PUT', `${PATH}/person`, { ...operator, body })).status).toBe(201);
    later();
    expect(await names('acme')).toContain('person');
    const disabled = { ...body, disabled: true };
    expect((await api('PUT', `${PATH}/person`, { ...operator, body: disabled })).status).toBe(200);
    later();
    expect(await names('acme')).not.toContain('person');
    expect((await api('GET', `${PATH}/person`, operator)).json).toMatchObject({ status: 'disabled' });
    expect((await api('DELETE', `${PATH}/person`, operator)).status).toBe(204);
    later();
    expect((await api('GET', '/v1/tools/person', { token: await tokenFor('acme') })).status).toBe(404);
  });

  test('is in the operator’s list, also when it is disabled, page by page', async () => {
    for (const name of ['list-a', 'list-b', 'list-c']) {
      const body = { kind: 'client', description: 'Of a list', disabled: name === 'list-b' };
      expect((await api('PUT', `${PATH}/${name}`, { ...operator, body })).status).toBe(201);
    }
    const listed = new Map<string, string>();
    let cursor: string | null = '';
    while (cursor !== null) {
      const page = await api('GET', `${PATH}?limit=1${cursor === '' ? '' : `&cursor=${cursor}`}`, operator);
      const { tools, next_cursor }: z.infer<typeof SharedToolListSchema> = SharedToolListSchema.parse(
        page.json,
      );
      expect(tools.length).toBeLessThanOrEqual(1);
      for (const { name, status } of tools) listed.set(name, status);
      cursor = next_cursor;
    }
    expect([...listed.keys()]).toEqual([...listed.keys()].toSorted());
    expect(Object.fromEntries(listed)).toMatchObject({
      'list-a': 'ready',
      'list-b': 'disabled',
      'list-c': 'ready',
    });
    expect(problemIn(await api('GET', `${PATH}?cursor=%21`, operator)).violations?.[0]?.path).toBe(
      'query.cursor',
    );
    const token = await tokenFor('acme');
    expect(problemIn(await api('GET', PATH, { token })).code).toBe('forbidden');
  });

  test('does not take the place of a tenant’s own, and comes when that goes', async () => {
    const token = await tokenFor('acme');
    const own = { name: 'mean', kind: 'client', description: 'Of ours' };
    expect((await api('POST', '/v1/tools', { token, body: own })).status).toBe(201);
    const shared = { ...own, description: 'For all' };
    expect((await api('POST', PATH, { ...operator, body: shared })).status).toBe(201);
    later();
    const described = async (tenant: string) =>
      (await api('GET', '/v1/tools/mean', { token: await tokenFor(tenant) })).json;
    expect(await described('globex')).toMatchObject({ description: 'For all', source: '*' });
    expect(await described('acme')).toMatchObject({ description: 'Of ours', source: null });
    const mine = await tokenFor('acme');
    expect((await api('DELETE', '/v1/tools/mean', { token: mine })).status).toBe(204);
    expect(await described('acme')).toMatchObject({ description: 'For all', source: '*' });
  });

  test('is the operator’s alone to make', async () => {
    const token = await tokenFor('acme');
    expect(problemIn(await api('POST', PATH, { token, body: WEATHER })).code).toBe('forbidden');
    const inner = { ...WEATHER, name: 'inner', url: 'https://127.0.0.1/{city}' };
    expect(problemIn(await api('POST', PATH, { ...operator, body: inner })).violations?.[0]?.path).toBe(
      'body.url',
    );
  });
});
