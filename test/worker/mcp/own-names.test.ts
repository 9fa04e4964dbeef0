/** Names that the server of MCP has for itself, where a registered tool has one of them too. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import * as z from 'zod';
import type { HostDouble } from '../../fixtures/host-double/host-double.ts';
import { tokenOf } from '../fixture-issuer.ts';
import { api } from '../harness/api.ts';
import { connectFakeHost } from '../harness/fake-host.ts';
import { call, rpc } from './rpc.ts';

const NAMES = ['execute_code', 'run_command'];
const ALL = 'sessions:read sessions:write tools:python tools:shell tools:client tools:write';
const ListSchema = z.object({ tools: z.array(z.object({ name: z.string(), description: z.string() })) });
let host: HostDouble;

const holder = (scope: string) => tokenOf({ claims: { tenant: 'namesakes', scope } });

async function listed(token: string) {
  const { messages } = await rpc({ jsonrpc: '2.0', id: 1, method: 'tools/list' }, { token });
  return ListSchema.parse(messages[0]?.result).tools;
}

beforeAll(async () => {
  host = await connectFakeHost();
  const token = await holder(ALL);
  for (const name of NAMES) {
    const tool = { name, description: `Theirs, called ${name}`, kind: 'client' };
    expect((await api('POST', '/v1/tools', { token, body: tool })).status).toBe(201);
  }
});
afterAll(() => host.close());

describe.each(NAMES)('%s', (name) => {
  test('is listed once, as the server has it', async () => {
    const found = (await listed(await holder(ALL))).filter((tool) => tool.name === name);
    expect(found).toHaveLength(1);
    expect(found[0]?.description).not.toContain('Theirs');
  });

  test('is nothing else for who may not call what the server has under it', async () => {
    const token = await holder('sessions:write tools:client');
    expect((await listed(token)).map((tool) => tool.name)).not.toContain(name);
    expect((await rpc(call(1, name, {}), { token })).text).toContain('insufficient_scope');
  });

  test('is the registered tool where it is found by search and called by call_tool', async () => {
    const token = await holder(ALL);
    const found = await rpc(call(1, 'search_tools', { query: `called ${name}` }), { token });
    expect(found.text).toContain(`Theirs, called ${name}`);
    const called = await rpc(call(2, 'call_tool', { name }), { token });
    expect(called.text).toContain(`${name} is executed by its caller`);
  });
});
