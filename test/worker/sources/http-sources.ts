/** What tests of MCP servers over HTTP share: a caller with a session, servers for the whole internet, and sources of them. */
import { afterAll, afterEach, beforeAll, beforeEach, expect, vi } from 'vitest';
import { ExecutionSchema } from '../../../shared/execution.ts';
import { SessionSchema } from '../../../shared/session.ts';
import { type ToolSource, ToolSourceListSchema, ToolSourceSchema } from '../../../shared/tool-source.ts';
import { ToolListSchema } from '../../../worker/routes/tools.ts';
import type { HostDouble } from '../../fixtures/host-double/host-double.ts';
import { ALL_SCOPES, tokenOf } from '../fixture-issuer.ts';
import { type ApiOptions, api } from '../harness/api.ts';
import { eventually } from '../harness/eventually.ts';
import { connectFakeHost } from '../harness/fake-host.ts';
import { Internet } from './stand-ins.ts';

export const scopes = (scope = ALL_SCOPES, tenant = 'acme') =>
  tokenOf({ claims: { tenant, sub: 'alice', scope } });

/** One session for all tests of a file; an internet without servers, and no source, for each. */
export function useHttpSources() {
  let host: HostDouble;
  let sessionId: string;
  let internet: Internet;

  beforeAll(async () => {
    host = await connectFakeHost();
    const created = await api('POST', '/v1/sessions', { token: await scopes(), body: {} });
    sessionId = SessionSchema.parse(created.json).session_id;
  });
  beforeEach(() => {
    internet = new Internet();
    internet.start();
  });
  afterEach(async () => {
    const { sources } = ToolSourceListSchema.parse(
      (await api('GET', '/v1/tool_sources', { token: await scopes() })).json,
    );
    for (const { name } of sources) {
      expect((await api('DELETE', `/v1/tool_sources/${name}`, { token: await scopes() })).status).toBe(204);
    }
    vi.restoreAllMocks();
  });
  afterAll(() => host.close());

  async function execute(tool_name: string, args: object, more: object = {}) {
    const body = { tool_name, arguments: args, ...more };
    return api('POST', `/v1/sessions/${sessionId}/execute`, { token: await scopes(), body });
  }

  async function executed(tool_name: string, args: object, more: object = {}) {
    const answer = await execute(tool_name, args, more);
    expect(answer.status, answer.text).toBe(200);
    return ExecutionSchema.parse(answer.json);
  }

  return { sessionId: () => sessionId, internet: () => internet, execute, executed };
}

export async function create(body: object, options: ApiOptions = {}) {
  const source = { kind: 'mcp_http', ...body };
  return api('POST', '/v1/tool_sources', { token: await scopes(), body: source, ...options });
}

export async function read(name: string): Promise<ToolSource> {
  const answer = await api('GET', `/v1/tool_sources/${name}`, { token: await scopes() });
  return ToolSourceSchema.parse(answer.json);
}

/** When it was asked for the first time. */
export async function asked(name: string): Promise<ToolSource> {
  return eventually(async () => {
    const source = await read(name);
    expect(source.status).not.toBe('pending');
    return source;
  });
}

export async function ready(
  body: { name: string; url: string } & Record<string, unknown>,
): Promise<ToolSource> {
  const created = await create(body);
  expect(created.status, created.text).toBe(201);
  const source = await asked(body.name);
  expect(source.last_error).toBeNull();
  return source;
}

export async function refresh(name: string): Promise<ToolSource> {
  const answer = await api('POST', `/v1/tool_sources/${name}/refresh`, { token: await scopes() });
  expect(answer.status, answer.text).toBe(200);
  return ToolSourceSchema.parse(answer.json);
}

export async function toolNames(token?: string): Promise<string[]> {
  const answer = await api('GET', '/v1/tools?limit=1000', { token: token ?? (await scopes()) });
  return ToolListSchema.parse(answer.json).tools.map(({ name }) => name);
}

export function tool(name: string) {
  return { name, inputSchema: { type: 'object' } };
}
