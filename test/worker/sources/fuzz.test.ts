/** Servers that answer anything at all: the source says what is wrong, a call ends with its reason, and nothing of ours fails. */
import { expect, test } from 'vitest';
import * as z from 'zod';
import { ExecutionSchema } from '../../../shared/execution.ts';
import { ToolSourceSchema } from '../../../shared/tool-source.ts';
import { api } from '../harness/api.ts';
import { generator, picker } from '../schema/generator.ts';
import { ready, scopes, tool, useHttpSources } from './http-sources.ts';

const ROUNDS = 250;
const { execute, internet } = useHttpSources();
const AskedSchema = z.object({ id: z.union([z.number(), z.string()]).optional(), method: z.string() });
const JSON_TYPE = { 'Content-Type': 'application/json' };
const SCALARS = ['null', 'true', '-1', '1e308', '9007199254740993', '""', '"x"', '"__proto__"', '"\\ud800"'];
const KEYS = ['tools', 'name', 'inputSchema', 'type', 'content', 'text', 'nextCursor', '_meta', 'isError'];

/** As text, since not all of it is what JavaScript would write. */
function anyValue(below: (count: number) => number, depth: number): string {
  const pick = picker(below);
  const kind = depth > 4 ? 0 : below(4);
  const many = () => Array.from({ length: below(4) }, () => anyValue(below, depth + 1));
  if (kind === 1) return `[${many().join(',')}]`;
  if (kind === 2)
    return `{${many()
      .map((value) => `"${pick(KEYS)}":${value}`)
      .join(',')}}`;
  return pick(SCALARS);
}

/** What answers a request; whatever has not its id is no answer, and would be waited for until the deadline. */
function anyAnswer(below: (count: number) => number, id: string, likely: () => string): Response {
  const pick = picker(below);
  const value = () => (below(2) === 0 ? likely() : anyValue(below, 0));
  const error = `"error":${pick([anyValue(below, 1), '{"code":-32603,"message":"no"}', '{"code":"x"}'])}`;
  const message = `{"jsonrpc":"2.0","id":${id},${below(4) === 0 ? error : `"result":${value()}`}}`;
  switch (below(8)) {
    case 0:
      return new Response(pick(['', '{', '<html>', '[]', 'null', message.slice(0, -1)]), {
        status: pick([400, 401, 403, 404, 500, 503]),
        headers: JSON_TYPE,
      });
    case 1:
      return new Response(`: note\n\nevent: message\ndata: ${message}\n\n`, {
        headers: { 'Content-Type': 'text/event-stream' },
      });
    case 2:
      return new Response(message, { headers: { 'Content-Type': pick(['text/html', 'image/png']) } });
    default:
      return new Response(message, { headers: JSON_TYPE });
  }
}

/** Each answer to `method` is made anew; the rest is as a server should be. */
function serve(host: string, method: string, answer: (id: string) => Response): void {
  const good: Record<string, object> = {
    initialize: {
      protocolVersion: '2025-11-25',
      capabilities: { tools: {} },
      serverInfo: { name: 's', version: '1' },
    },
    'tools/list': { tools: [tool('a')] },
  };
  internet().host(host, async (request) => {
    if (request.method !== 'POST') return new Response(null, { status: 405 });
    const asked = AskedSchema.parse(await request.json());
    if (asked.id === undefined) return new Response(null, { status: 202 });
    if (asked.method === method) return answer(JSON.stringify(asked.id));
    const result = good[asked.method];
    const end = result === undefined ? { error: { code: -32_601, message: 'no' } } : { result };
    return Response.json({ jsonrpc: '2.0', id: asked.id, ...end });
  });
}

test('a list that nobody would write leaves the source with what is a tool in it, or with a reason', async () => {
  const below = generator(14);
  let isFuzzed = false;
  const likely = () => `{"tools":[{"name":"b","inputSchema":${anyValue(below, 0)}},${anyValue(below, 0)}]}`;
  serve('lists.example.com', 'tools/list', (id) =>
    isFuzzed
      ? anyAnswer(below, id, likely)
      : Response.json({ jsonrpc: '2.0', id: JSON.parse(id), result: { tools: [tool('a')] } }),
  );
  await ready({ name: 'lists', url: 'https://lists.example.com/mcp' });
  isFuzzed = true;
  const outcomes = { ready: 0, degraded: 0, failed: 0, broken: 0 };
  const token = await scopes();
  for (let round = 0; round < ROUNDS; round += 1) {
    const answer = await api('POST', '/v1/tool_sources/lists/refresh', { token });
    expect(answer.status, answer.text).toBe(200);
    const { status, last_error, broken_count } = ToolSourceSchema.parse(answer.json);
    if (status !== 'ready') expect(last_error, answer.text).toBeTruthy();
    outcomes[z.enum(['ready', 'degraded', 'failed']).parse(status)] += 1;
    outcomes.broken += broken_count;
  }
  const { degraded: _, ...seen } = outcomes;
  for (const count of Object.values(seen)) expect(count, JSON.stringify(outcomes)).toBeGreaterThan(0);
  isFuzzed = false;
  const last = await api('POST', '/v1/tool_sources/lists/refresh', { token });
  expect(ToolSourceSchema.parse(last.json)).toMatchObject({ status: 'ready', tool_count: 1 });
});

test('an answer to a call that nobody would write is the end of the call, with its reason', async () => {
  const below = generator(15);
  const likely = () => `{"content":[{"type":"text","text":"t"},${anyValue(below, 1)}]}`;
  serve('calls.example.com', 'tools/call', (id) => anyAnswer(below, id, likely));
  await ready({ name: 'calls', url: 'https://calls.example.com/mcp' });
  const outcomes = { succeeded: 0, failed: 0 };
  for (let round = 0; round < ROUNDS; round += 1) {
    const answer = await execute('calls.a', {});
    expect(answer.status, answer.text).toBe(200);
    const { status, error } = ExecutionSchema.parse(answer.json);
    if (status !== 'succeeded') expect(error?.message, answer.text).toBeTruthy();
    outcomes[z.enum(['succeeded', 'failed']).parse(status)] += 1;
  }
  for (const count of Object.values(outcomes)) expect(count, JSON.stringify(outcomes)).toBeGreaterThan(0);
});
