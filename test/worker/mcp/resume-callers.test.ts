/** Who may come back for the stream of a call that was cut. */
import { listDurableObjectIds } from 'cloudflare:test';
import { env } from 'cloudflare:workers';
import { describe, expect, test } from 'vitest';
import { configurationOf } from '../../../worker/configuration.ts';
import { eventIdOf, pointOf } from '../../../worker/mcp/event-id.ts';
import { api, problemIn } from '../harness/api.ts';
import {
  alice,
  answersIn,
  as,
  begin,
  comeBack,
  OLDER,
  options,
  steps,
  useStage,
  VERSION,
} from './resuming.ts';
import { call, initialize, MODERN, modern, resume, rpc } from './rpc.ts';

const stage = useStage();

describe('who may come back', () => {
  async function ended(): Promise<string> {
    const first = await begin(steps({ session_id: stage.sessionId }));
    await first.next();
    await (await stage.newestExecution()).finish();
    await first.rest();
    return first.lastId ?? '';
  }

  async function awake(): Promise<number> {
    const ids = await Promise.all([env.SESSION, env.MCP_CALLS].map((space) => listDurableObjectIds(space)));
    return ids.flat().length;
  }

  test('is the caller of the call alone: any other id is refused like any, and wakes nothing', async () => {
    const id = await ended();
    const { tagKey } = await configurationOf(env);
    const caller = { tenant: 'acme', subject: 'alice' };
    const point = await pointOf(id, { tagKey, caller, nowMs: Date.now() });
    if (point === undefined) throw new Error('the id is none');
    const dayAgo = { ...point, takenAtMs: point.takenAtMs - 86_400_000 };
    const changed = `${id.startsWith('A') ? 'B' : 'A'}${id.slice(1)}`;
    const retagged = `${id.slice(0, -1)}${id.endsWith('A') ? 'B' : 'A'}`;
    const before = await awake();
    const answers = [];
    for (const [token, lastEventId] of [
      [await as('bob'), id],
      [await as('alice', 'globex'), id],
      [await alice(), changed],
      [await alice(), retagged],
      [await alice(), await eventIdOf(tagKey, caller, dayAgo)],
      [await alice(), 'no id'],
      [await alice(), 'x'.repeat(4_000)],
      [await alice(), `.${'A'.repeat(16)}`],
      [await alice(), ''],
    ] as const) {
      const response = await resume(lastEventId, await options({ token }));
      answers.push([response.status, await response.text()]);
    }
    expect(new Set(answers.map(String)).size).toBe(1);
    expect(answers[0]).toEqual([400, expect.stringContaining('Last-Event-ID')]);
    expect(await awake()).toBe(before);
    expect(answersIn(await (await comeBack(id)).rest())).toHaveLength(1);
  });

  test('is somebody who may still call the tool, and whose MCP session it is', async () => {
    const id = await ended();
    const token = await as('alice', 'acme', { scope: 'tools:python' });
    const refused = await api('GET', '/mcp', {
      token,
      headers: { ...OLDER, Accept: 'text/event-stream', 'Last-Event-ID': id },
    });
    expect(problemIn(refused)).toMatchObject({ status: 403, code: 'insufficient_scope' });
    const foreign = await rpc(initialize(VERSION), { token: await as('bob') });
    const headers = { 'Mcp-Session-Id': foreign.headers.get('Mcp-Session-Id') ?? '' };
    expect((await resume(id, await options({ headers }))).status).toBe(404);
    const own = await rpc(initialize(VERSION), { token: await alice() });
    await comeBack(id, { headers: { 'Mcp-Session-Id': own.headers.get('Mcp-Session-Id') ?? '' } });
  });

  test('takes events, and says where it was', async () => {
    const id = await ended();
    const json = await api('GET', '/mcp', {
      token: await alice(),
      headers: { ...OLDER, Accept: 'application/json', 'Last-Event-ID': id },
    });
    expect(json.status).toBe(406);
    for (const headers of [OLDER, { 'Mcp-Protocol-Version': MODERN, 'Last-Event-ID': id }]) {
      const answer = await api('GET', '/mcp', {
        token: await alice(),
        headers: { ...headers, Accept: 'text/event-stream' },
      });
      expect(problemIn(answer)).toMatchObject({ status: 405, code: 'method_not_allowed' });
      expect(answer.headers.get('Allow')).toBe('POST');
    }
  });

  test('is nobody of the newer era, whose streams have no ids', async () => {
    const { body, headers } = modern({ ...call(1, 'shell', { command: 'x', session_id: stage.sessionId }) });
    const answering = rpc(body, { token: await alice(), headers });
    await (await stage.newestExecution()).finish();
    expect((await answering).text).not.toMatch(/^(id|retry):/m);
  });
});
