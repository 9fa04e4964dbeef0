import { describe, expect, test } from 'vitest';
import * as z from 'zod';
import { request } from '../harness/api.ts';
import { EventReader } from '../harness/event-reader.ts';
import { connectClient } from '../mcp/clients.ts';
import { ready, scopes, useHttpSources } from './http-sources.ts';
import { sessionServer, statelessServer } from './stand-ins.ts';

const sources = useHttpSources();
const TokenSchema = z.union([z.string(), z.number()]);

describe('a call of an MCP server', () => {
  test('tells of its progress, which the caller hears over REST and over MCP', async () => {
    const told = (progressToken: unknown, progress: number) => ({
      method: 'notifications/progress' as const,
      params: {
        progressToken: TokenSchema.parse(progressToken),
        progress,
        total: 2,
        message: `step ${progress}`,
      },
    });
    sources.internet().host(
      'new.example.com',
      statelessServer((server) => {
        server.registerTool('work', { inputSchema: z.object({}) }, async (_, { mcpReq }) => {
          const { progressToken } = mcpReq._meta ?? {};
          if (progressToken === undefined) return { content: [{ type: 'text', text: 'nobody asks' }] };
          await mcpReq.notify(told(progressToken, 1));
          // Not backwards, and not more than can be read.
          await mcpReq.notify(told(progressToken, 0.5));
          return { content: [{ type: 'text', text: 'done' }] };
        });
      }),
    );
    const sessions = sessionServer((older) => {
      older.setRequestHandler('tools/list', () => ({
        tools: [{ name: 'work', inputSchema: { type: 'object' } }],
      }));
      older.setRequestHandler('tools/call', async ({ params }, { mcpReq }) => {
        await mcpReq.notify(told(params._meta?.progressToken, 1));
        return { content: [{ type: 'text', text: 'done' }] };
      });
    });
    sources.internet().host('old.example.com', sessions.answer);
    for (const name of ['new', 'old']) {
      await ready({ name, url: `https://${name}.example.com/mcp` });
      for (const path of [`/v1/sessions/${sources.sessionId()}/execute`, '/v1/execute']) {
        const body = { tool_name: `${name}.work`, arguments: {}, stream: true };
        const stream = await new EventReader(
          await request('POST', path, { token: await scopes(), body }),
        ).toEnd();
        expect(stream.map(({ data }) => data.event)).toEqual(['started', 'progress', 'stdout', 'end']);
        expect(stream[1]?.data).toEqual({ event: 'progress', progress: 1, total: 2, message: 'step 1' });
        expect(stream[3]?.data).toMatchObject({ execution: { status: 'succeeded', stdout: '' } });
      }
      const client = await connectClient('2026-07-28', await scopes());
      for (const args of [{}, { session_id: sources.sessionId() }]) {
        const heard: unknown[] = [];
        const onprogress = (progress: unknown) => heard.push(progress);
        await client.callTool({ name: `${name}.work`, arguments: args }, { onprogress });
        expect(heard).toEqual([{ progress: 1, total: 2, message: 'step 1' }]);
      }
      await client.close();
    }
    expect(await sources.executed('new.work', {})).toMatchObject({ stdout: 'nobody asks' });
  });

  test('streamed again with its key is made once, and is the stream of the first', async () => {
    let made = 0;
    sources.internet().host(
      'mcp.example.com',
      statelessServer((server) => {
        server.registerTool('count', { inputSchema: z.object({}) }, () => {
          made += 1;
          return { content: [{ type: 'text', text: `made ${made}` }] };
        });
      }),
    );
    await ready({ name: 'once', url: 'https://mcp.example.com/mcp' });
    const streamed = async () => {
      const body = { tool_name: 'once.count', arguments: {}, stream: true };
      const headers = { 'Idempotency-Key': 'streamed-once' };
      const path = `/v1/sessions/${sources.sessionId()}/execute`;
      return new EventReader(await request('POST', path, { token: await scopes(), body, headers })).toEnd();
    };
    const [first, second] = [await streamed(), await streamed()];
    expect(second.map(({ id, data }) => [id, data.event])).toEqual(
      first.map(({ id, data }) => [id, data.event]),
    );
    expect(made).toBe(1);
    const id = first[0]?.id.split(':')[0];
    const path = `/v1/sessions/${sources.sessionId()}/executions/${id}/events`;
    const read = await new EventReader(await request('GET', path, { token: await scopes() })).toEnd();
    expect(read.map(({ data }) => data.event)).toEqual(['started', 'stdout', 'end']);
  });
});
