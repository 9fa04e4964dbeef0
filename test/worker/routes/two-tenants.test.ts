/** Two tenants with 5,000 tools each: what one sees, finds and calls is its own, by every road, and of that what its token may. */
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import * as z from 'zod';
import { ExecutionSchema } from '../../../shared/execution.ts';
import { RegisteredManySchema } from '../../../shared/registered-tool.ts';
import { SessionSchema } from '../../../shared/session.ts';
import { ToolListSchema, ToolSearchSchema } from '../../../worker/routes/tools.ts';
import type { HostDouble, Script } from '../../fixtures/host-double/host-double.ts';
import { ALL_SCOPES, tokenOf } from '../fixture-issuer.ts';
import { api, problemIn, request } from '../harness/api.ts';
import { connectFakeHost } from '../harness/fake-host.ts';
import { call, rpc } from '../mcp/rpc.ts';

const TENANTS = ['acme', 'globex'] as const;
type Tenant = (typeof TENANTS)[number];
const TOOLS = 5_000;
const AT_ONCE = 500;
/** Of every tool that is guarded. */
const GUARD = 'crm.read';
const BUILT_IN = ['python', 'node', 'shell', 'file', 'run'];
const SET_UP_TIMEOUT_MS = 300_000;
const TIMEOUT_MS = 120_000;

let host: HostDouble;
const ran: string[] = [];
const sessions = new Map<Tenant, string>();

const script: Script = async (execution) => {
  execution.started();
  const code = String(execution.arguments.code);
  ran.push(/made by (\w+)/.exec(code)?.[1] ?? code);
  execution.part('value', '{}');
  return execution.finish();
};

/** Every third name is of both tenants, and stands for another tool in each. */
function nameOf(tenant: Tenant, n: number): string {
  return n % 3 === 0 ? `shared_${n}` : `${tenant}_${n}`;
}

function toolOf(tenant: Tenant, n: number) {
  return {
    name: nameOf(tenant, n),
    description: `Counts the ${tenant === 'acme' ? 'marmots' : 'walruses'} of district ${n}`,
    category: `${tenant}/counts`,
    kind: 'code',
    language: 'python',
    code: `def main():\n    "made by ${tenant}"`,
    ...(n % 2 === 0 ? {} : { required_scopes: ['tools:python', GUARD] }),
  };
}

const tokenFor = (tenant: Tenant, scope = `${ALL_SCOPES} ${GUARD}`) =>
  tokenOf({ claims: { tenant, sub: 'alice', scope } });
const namesOf = (tenant: Tenant, filter: (n: number) => boolean = () => true) =>
  Array.from({ length: TOOLS }, (_, n) => n)
    .filter(filter)
    .map((n) => nameOf(tenant, n))
    .toSorted();
const other = (tenant: Tenant): Tenant => (tenant === 'acme' ? 'globex' : 'acme');

beforeAll(async () => {
  host = await connectFakeHost({ script });
  for (const tenant of TENANTS) {
    const token = await tokenFor(tenant);
    const created = await api('POST', '/v1/sessions', { token, body: {} });
    sessions.set(tenant, SessionSchema.parse(created.json).session_id);
    for (let from = 0; from < TOOLS; from += AT_ONCE) {
      const tools = Array.from({ length: AT_ONCE }, (_, n) => toolOf(tenant, from + n));
      const answer = await api('POST', '/v1/tools', { token, body: { tools } });
      const { tools: marked } = RegisteredManySchema.parse(answer.json);
      expect(marked.filter(({ status }) => status !== 'created')).toEqual([]);
    }
  }
}, SET_UP_TIMEOUT_MS);
afterEach(() => {
  expect(host.failures).toEqual([]);
  ran.length = 0;
});
afterAll(() => host.close());

async function walked(token: string, query = ''): Promise<string[]> {
  const names: string[] = [];
  let cursor: string | null = null;
  do {
    const after: string = cursor === null ? '' : `&cursor=${cursor}`;
    const answer = await request('GET', `/v1/tools?limit=1000${query}${after}`, { token });
    const page: z.infer<typeof ToolListSchema> = ToolListSchema.parse(await answer.json());
    names.push(...page.tools.map(({ name }) => name));
    cursor = page.next_cursor;
  } while (cursor !== null && names.length < 2 * TOOLS);
  return names;
}

const McpPageSchema = z.object({
  tools: z.array(z.object({ name: z.string() })),
  nextCursor: z.string().optional(),
});

async function walkedOverMcp(token: string): Promise<string[]> {
  const names: string[] = [];
  let cursor: string | undefined;
  do {
    const params = cursor === undefined ? {} : { cursor };
    const { messages } = await rpc({ jsonrpc: '2.0', id: 1, method: 'tools/list', params }, { token });
    const page = McpPageSchema.parse(messages[0]?.result);
    names.push(...page.tools.map(({ name }) => name));
    cursor = page.nextCursor;
  } while (cursor !== undefined && names.length < 2 * TOOLS);
  return names;
}

async function found(token: string, query: string): Promise<string[]> {
  const answer = await api('GET', `/v1/tools/search?top_k=50&q=${encodeURIComponent(query)}`, { token });
  return ToolSearchSchema.parse(answer.json).tools.map(({ name }) => name);
}

/** What a call by each road is answered with: the execution's status, or why there is none. */
async function calledByEveryRoad(
  tenant: Tenant,
  name: string,
  token: string,
): Promise<Record<string, string>> {
  const session = sessions.get(tenant) ?? '';
  const rest = await api('POST', `/v1/sessions/${session}/execute`, { token, body: { tool_name: name } });
  const message = { role: 'assistant', tool_calls: [{ id: 'c', function: { name, arguments: '{}' } }] };
  const model = await api('POST', `/v1/sessions/${session}/tool_calls`, { token, body: message });
  const direct = (await rpc(call(1, name, { session_id: session }), { token })).text;
  const named = (await rpc(call(2, 'call_tool', { name, session_id: session }), { token })).text;
  const xagent = await request('POST', '/xagent/execute_tool', {
    token,
    headers: { 'Node-Id': session },
    body: { tool_name: name, arguments: {} },
  });
  const enclave = await request('POST', '/ms-enclave/sandbox/tool/execute', {
    token,
    body: { sandbox_id: session, tool_name: name, parameters: {} },
  });
  const said = (text: string) => /succeeded|tool_not_found|no tool/.exec(text)?.[0] ?? text;
  return {
    rest: rest.status === 200 ? ExecutionSchema.parse(rest.json).status : problemIn(rest).code,
    model: said(model.text),
    direct: said(direct),
    named: said(named),
    xagent: String(xagent.status),
    enclave: String(enclave.status),
  };
}

const RAN = {
  rest: 'succeeded',
  model: 'succeeded',
  direct: 'succeeded',
  named: 'succeeded',
  xagent: '200',
  enclave: '200',
};
const NOT_FOUND = {
  rest: 'tool_not_found',
  model: 'tool_not_found',
  direct: 'no tool',
  named: 'tool_not_found',
  xagent: '404',
  enclave: '404',
};

describe.each(TENANTS)('of two tenants with 5,000 tools each, %s', (tenant) => {
  test(
    'sees all of its own and nothing of the other’s, by REST and MCP',
    async () => {
      const token = await tokenFor(tenant);
      const byRest = await walked(token);
      expect(byRest.slice(BUILT_IN.length).toSorted()).toEqual(namesOf(tenant));
      expect(byRest.slice(0, BUILT_IN.length)).toEqual(BUILT_IN);
      const byMcp = await walkedOverMcp(token);
      expect(new Set(byMcp).size).toBe(byMcp.length);
      const registered = byMcp.filter((name) => /_\d+$/.test(name));
      expect(registered.toSorted()).toEqual(namesOf(tenant));
      expect(await walked(token, `&category=${other(tenant)}`)).toEqual([]);
    },
    TIMEOUT_MS,
  );

  test(
    'finds its own and nothing of the other’s',
    async () => {
      const token = await tokenFor(tenant);
      const [mine, theirs] = tenant === 'acme' ? ['marmots', 'walruses'] : ['walruses', 'marmots'];
      const own = await found(token, `count the ${mine} of district 4711`);
      expect(own[0]).toBe(nameOf(tenant, 4711));
      expect(own.every((name) => namesOf(tenant).includes(name))).toBe(true);
      expect(await found(token, theirs)).toEqual([]);
      const { text } = await rpc(call(1, 'search_tools', { query: theirs, top_k: 50 }), { token });
      expect(text).not.toContain(other(tenant));
      const body = { question: `count the ${mine} of district 4711`, top_k: 3 };
      const byAdapter = await request('POST', '/xagent/retrieving_tools', { token, body });
      expect(await byAdapter.json()).toMatchObject({
        retrieved_tools: [nameOf(tenant, 4711), expect.any(String), expect.any(String)],
      });
    },
    TIMEOUT_MS,
  );

  test('calls its own by every road, also where the other has a tool of the same name', async () => {
    const token = await tokenFor(tenant);
    for (const n of [0, 1, 4_998]) {
      expect(await calledByEveryRoad(tenant, nameOf(tenant, n), token)).toEqual(RAN);
    }
    expect(new Set(ran)).toEqual(new Set([tenant]));
    expect(ran).toHaveLength(18);
  });

  test('calls nothing of the other’s by any road, and learns nothing of what there is', async () => {
    const token = await tokenFor(tenant);
    const theirs = nameOf(other(tenant), 4_999);
    expect(await calledByEveryRoad(tenant, theirs, token)).toEqual(NOT_FOUND);
    expect(await calledByEveryRoad(tenant, 'nobody_1', token)).toEqual(NOT_FOUND);
    const schemas = await request('POST', '/xagent/get_json_schema_for_tools', {
      token,
      body: { tool_names: [theirs] },
    });
    expect(await schemas.json()).toEqual({ tools_json: [], missing_tools: [theirs] });
    expect(ran).toEqual([]);
  });

  test(
    'without a scope sees, finds and calls just what does not need it',
    async () => {
      const token = await tokenFor(tenant);
      const without = await tokenFor(tenant, 'tools:python sessions:read');
      const open = namesOf(tenant, (n) => n % 2 === 0);
      expect((await walked(without)).toSorted()).toEqual([...open, 'python'].toSorted());
      const byMcp = (await walkedOverMcp(without)).filter((name) => /_\d+$/.test(name));
      expect(byMcp.toSorted()).toEqual(open);
      const mine = tenant === 'acme' ? 'marmots' : 'walruses';
      expect(
        (await found(without, `${mine} of district 4711`)).filter((name) => !open.includes(name)),
      ).toEqual([]);
      const body = { tool_names: [nameOf(tenant, 4711), nameOf(tenant, 4712)] };
      const declared = await request('POST', '/xagent/get_json_schema_for_tools', { token: without, body });
      expect(await declared.json()).toMatchObject({ missing_tools: [nameOf(tenant, 4711)] });
      expect(await calledByEveryRoad(tenant, nameOf(tenant, 4711), without)).toEqual(NOT_FOUND);
      expect(ran).toEqual([]);
      expect(await calledByEveryRoad(tenant, nameOf(tenant, 4712), without)).toEqual(RAN);
      expect(await calledByEveryRoad(tenant, nameOf(tenant, 4711), token)).toEqual(RAN);
    },
    TIMEOUT_MS,
  );
});
