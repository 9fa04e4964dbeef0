/** A hundred equal requests with one key are one: their answers are the same bytes, now and after a restart. */
import { abortAllDurableObjects } from 'cloudflare:test';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { ExecutionSchema } from '../../../shared/execution.ts';
import { SessionSchema } from '../../../shared/session.ts';
import type { HostDouble } from '../../fixtures/host-double/host-double.ts';
import { tokenOf } from '../fixture-issuer.ts';
import { type ApiAnswer, api, problemIn } from '../harness/api.ts';
import { connectFakeHost } from '../harness/fake-host.ts';

const COUNT = 100;
const as = (tenant: string, sub = 'alice') => tokenOf({ claims: { tenant, sub } });
const headers = { 'Idempotency-Key': 'the-same' };

let host: HostDouble;
beforeAll(async () => {
  host = await connectFakeHost({ capacity: 1_000 });
});
afterEach(() => {
  expect(host.failures).toEqual([]);
});
afterAll(() => host.close());

const hundred = (send: () => Promise<ApiAnswer>): Promise<ApiAnswer[]> =>
  Promise.all(Array.from({ length: COUNT }, send));

function theOne(answers: readonly ApiAnswer[], status: number): ApiAnswer {
  expect(answers.map((answer) => answer.status)).toEqual(Array(answers.length).fill(status));
  expect(new Set(answers.map(({ text }) => text)).size).toBe(1);
  const [first] = answers;
  if (first === undefined) throw new Error('no answer');
  return first;
}

async function open(token: string): Promise<string> {
  return SessionSchema.parse((await api('POST', '/v1/sessions', { token, body: {} })).json).session_id;
}

function execute(token: string, sessionId: string, command: string): Promise<ApiAnswer> {
  const body = { tool_name: 'shell', arguments: { command } };
  return api('POST', `/v1/sessions/${sessionId}/execute`, { token, headers, body });
}

describe('a hundred equal calls', () => {
  test('are one execution, with a hundred equal answers, also after every object was lost', async () => {
    const token = await as('one');
    const sessionId = await open(token);
    const send = () => execute(token, sessionId, 'once');
    const before = theOne(await hundred(send), 200);
    expect(host.session(sessionId).executions.size).toBe(1);
    await abortAllDurableObjects();
    const after = theOne(await hundred(send), 200);
    expect(after.text).toBe(before.text);
    expect(host.session(sessionId).executions.size).toBe(1);
    expect(ExecutionSchema.parse(after.json)).toMatchObject({ status: 'succeeded', stdout: 'once' });
    const other = await execute(token, sessionId, 'twice');
    expect(problemIn(other)).toMatchObject({ status: 422, code: 'idempotency_conflict' });
    expect(host.session(sessionId).executions.size).toBe(1);
    await host.connect();
  });

  test('of another session, of another tenant, and without a key are others', async () => {
    const [mine, theirs] = [await as('one'), await as('two')];
    const sessions = [await open(mine), await open(mine)];
    const foreign = await open(theirs);
    const answers = [
      await execute(mine, sessions[0] ?? '', 'x'),
      await execute(mine, sessions[1] ?? '', 'x'),
      await execute(theirs, foreign, 'x'),
    ];
    const ids = answers.map((answer) => ExecutionSchema.parse(answer.json).execution_id);
    expect(new Set(ids).size).toBe(3);
    const body = { tool_name: 'shell', arguments: { command: 'x' } };
    const bare = () => api('POST', `/v1/sessions/${foreign}/execute`, { token: theirs, body });
    await Promise.all([bare(), bare()]);
    expect(host.session(foreign).executions.size).toBe(3);
  });
});

describe('a hundred equal creates', () => {
  test('are one session, also after every object was lost', async () => {
    const token = await as('creating');
    const send = () => api('POST', '/v1/sessions', { token, headers, body: { metadata: { n: '1' } } });
    const idOf = (answer: ApiAnswer) => SessionSchema.parse(answer.json).session_id;
    const before = await hundred(send);
    expect(new Set(before.map(idOf)).size).toBe(1);
    await abortAllDurableObjects();
    const after = await hundred(send);
    expect(new Set([...before, ...after].map(idOf)).size).toBe(1);
    const changed = await api('POST', '/v1/sessions', { token, headers, body: { metadata: { n: '2' } } });
    expect(problemIn(changed)).toMatchObject({ status: 422, code: 'idempotency_conflict' });
    await host.connect();
    const others = [await as('creating', 'bob'), await as('elsewhere')].map((other) =>
      api('POST', '/v1/sessions', { token: other, headers, body: {} }),
    );
    const ids = (await Promise.all(others)).map(idOf);
    expect(new Set([...ids, idOf(before[0] ?? after[0] ?? (await send()))]).size).toBe(3);
  });
});

test('a hundred equal calls in sessions of their own run once', async () => {
  const token = await as('own');
  const body = { tool_name: 'shell', arguments: { command: 'alone' } };
  const answers = await hundred(() => api('POST', '/v1/execute', { token, headers, body }));
  theOne(answers, 200);
  const runs = host.commands.filter(
    ({ claims, payload }) => claims.act === 'execute' && new TextDecoder().decode(payload).includes('alone'),
  );
  expect(runs).toHaveLength(1);
});
