/** What happens in a session, as its stream tells it. */
import { evictDurableObject } from 'cloudflare:test';
import { env } from 'cloudflare:workers';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { ProgramSchema } from '../../../shared/code-mode.ts';
import { ExecutionSchema } from '../../../shared/execution.ts';
import { newId } from '../../../shared/ids.ts';
import { SessionSchema } from '../../../shared/session.ts';
import { SnapshotSchema } from '../../../shared/snapshot-resource.ts';
import { MAX_KEPT_EVENTS } from '../../../worker/objects/session/events/events.ts';
import { echo, type HostDouble, type Script } from '../../fixtures/host-double/host-double.ts';
import { ALL_SCOPES, tokenOf } from '../fixture-issuer.ts';
import { api, problemIn, request } from '../harness/api.ts';
import { connectFakeHost } from '../harness/fake-host.ts';
import { SessionEventReader, typesOf } from '../harness/session-events.ts';
import { openSession } from '../harness/sessions.ts';

let host: HostDouble;
const alice = () => tokenOf({ claims: { tenant: 'acme', sub: 'alice' } });

beforeAll(async () => {
  host = await connectFakeHost({
    script: async (execution, session) => {
      if (execution.arguments.command !== 'fail') return echo(execution, session);
      execution.started();
      return execution.finish({
        status: 'failed',
        exit_code: 3,
        error: { name: 'ValueError', message: 'm'.repeat(5_000), traceback: 'secret place' },
      });
    },
  });
});
afterEach(() => expect(host.failures).toEqual([]));
afterAll(() => host.close());

async function open(): Promise<string> {
  const made = await api('POST', '/v1/sessions', { token: await alice(), body: {} });
  return SessionSchema.parse(made.json).session_id;
}

/** Asks a person once, and goes on until it is stopped. */
const asking: Script = async (execution) => {
  execution.started();
  execution.call(1, 'people.ask', { question: 'x' });
  await execution.interrupted;
  return execution.finish({ status: 'interrupted', exit_code: null });
};

async function shell(sessionId: string, command: string) {
  const body = { tool_name: 'shell', arguments: { command } };
  const answer = await api('POST', `/v1/sessions/${sessionId}/execute`, { token: await alice(), body });
  return ExecutionSchema.parse(answer.json);
}

async function act(sessionId: string, what: string, body: object = {}) {
  const answer = await api('POST', `/v1/sessions/${sessionId}/${what}`, { token: await alice(), body });
  expect(answer.status, answer.text).toBeLessThan(300);
  return answer.json;
}

describe('the stream of a session', () => {
  test('tells its life in order, each event with the next number, and ends with the session', async () => {
    const sessionId = await open();
    const reader = await SessionEventReader.open(sessionId, await alice());
    const ran = await shell(sessionId, 'hello');
    const failed = await shell(sessionId, 'fail');
    await act(sessionId, 'pause');
    await act(sessionId, 'resume');
    const kept = SnapshotSchema.parse(await act(sessionId, 'snapshots', { name: 'kept' }));
    await act(sessionId, 'suspend');
    await act(sessionId, 'resume');
    await api('DELETE', `/v1/sessions/${sessionId}`, { token: await alice() });
    const seen = await reader.toEnd();
    expect(typesOf(seen)).toEqual([
      'session.created',
      'execution.accepted',
      'execution.finished',
      'execution.accepted',
      'execution.finished',
      'session.paused',
      'session.resumed',
      'snapshot.created',
      'session.suspended',
      'session.resumed',
      'session.destroyed',
    ]);
    expect(seen.map(({ id }) => id)).toEqual(seen.map((_, index) => String(index + 1)));
    expect(new Set(seen.map(({ event }) => ('id' in event ? event.id : ''))).size).toBe(seen.length);
    expect(seen.map(({ event }) => event)).toMatchObject([
      { n: 1, data: { session_id: sessionId, state: 'running', host_id: host.hostId } },
      { data: { session_id: sessionId, execution_id: ran.execution_id, tool_name: 'shell' } },
      { data: { execution_id: ran.execution_id, status: 'succeeded', exit_code: 0, error: null } },
      {},
      { data: { execution_id: failed.execution_id, status: 'failed', exit_code: 3 } },
      {},
      {},
      { data: { snapshot_id: kept.snapshot_id, stored_bytes: kept.stored_bytes } },
      { data: { state: 'suspended', host_id: null } },
      {},
      { data: { state: 'destroyed' } },
    ]);
    const told = JSON.stringify(seen);
    expect(told).not.toContain('secret place');
    expect(told).not.toContain('hello');
    expect(told.length).toBeLessThan(8_000);
  });

  test('goes on after the last event that arrived, also when the object was gone meanwhile', async () => {
    const sessionId = await open();
    await shell(sessionId, 'one');
    const first = await SessionEventReader.open(sessionId, await alice());
    const { id } = await first.until('execution.accepted');
    await first.cancel();
    const name = `acme:${sessionId}`;
    await evictDurableObject(env.SESSION.get(env.SESSION.idFromName(name)));
    const again = await SessionEventReader.open(sessionId, await alice(), id);
    const rest = await again.until('execution.finished');
    expect([id, rest.id]).toEqual(['2', '3']);
    expect(typesOf(again.seen)).toEqual(['execution.finished']);
    await host.until(() => host.session(sessionId).isLinked);
    await shell(sessionId, 'two');
    expect((await again.until('execution.finished')).id).toBe('5');
    await again.cancel();
  });

  test('names the events that are no longer kept', async () => {
    const sessionId = await open();
    const data = {
      execution_id: newId('exe'),
      tool_name: 'x',
      requested_by: 'alice',
      expires_at: new Date().toISOString(),
    };
    const session = env.SESSION.getByName(`acme:${sessionId}`);
    for (let count = 0; count < MAX_KEPT_EVENTS + 120; count += 1) {
      await session.noteApproval(newId('evt'), { type: 'approval.waiting', data });
    }
    const reader = await SessionEventReader.open(sessionId, await alice(), '1');
    const [gap, next] = [await reader.next(), await reader.next()];
    expect(gap?.event).toMatchObject({ type: 'gap', from: 2 });
    const to = gap?.event.type === 'gap' ? gap.event.to : 0;
    expect(to).toBeGreaterThan(50);
    expect(gap?.id).toBe(String(to));
    expect(next?.id).toBe(String(to + 1));
    await reader.cancel();
  });

  test.each(['99', 'x', '-1', '1.5', '1:0:0:0'])('has no place %s', async (id) => {
    const answer = await api('GET', `/v1/sessions/${await open()}/events`, {
      token: await alice(),
      headers: { 'Last-Event-ID': id },
    });
    expect(problemIn(answer)).toMatchObject({
      code: 'invalid_request',
      violations: [{ path: 'header.Last-Event-ID', expected: 'the id of an event of this session' }],
    });
  });

  test('is read by a bounded number at once, and each that leaves makes room', async () => {
    const sessionId = await open();
    const token = await alice();
    const readers: SessionEventReader[] = [];
    for (let count = 0; count < 16; count += 1) readers.push(await SessionEventReader.open(sessionId, token));
    const path = `/v1/sessions/${sessionId}/events`;
    const refused = await api('GET', path, { token });
    expect(problemIn(refused)).toMatchObject({ code: 'quota_exceeded', status: 429 });
    await readers[0]?.cancel();
    const taken = await request('GET', path, { token });
    expect(taken.status).toBe(200);
    await taken.body?.cancel();
    await Promise.all(readers.slice(1).map((reader) => reader.cancel()));
  });

  test('tells where a session has moved to, and what its programs wait for', async () => {
    const token = await alice();
    const ask = { name: 'people.ask', description: 'Asks a person', kind: 'client' };
    await api('POST', '/v1/tools', { token, body: ask });
    const from = await connectFakeHost({ script: asking });
    const { id: sessionId } = await openSession(from);
    const reader = await SessionEventReader.open(sessionId, token);
    const body = { language: 'python', code: 'x', detach: true };
    const begun = await api('POST', `/v1/sessions/${sessionId}/programs`, { token, body });
    const { program_id } = ProgramSchema.parse(begun.json);
    const waiting = await reader.until('program.waiting');
    const shown = await api('GET', `/v1/sessions/${sessionId}/programs/${program_id}`, { token });
    const [pending] = ProgramSchema.parse(shown.json).pending;
    expect(waiting.event).toMatchObject({
      data: { program_id, call: { id: pending?.id, tool_name: 'people.ask' } },
    });
    await api('POST', `/v1/sessions/${sessionId}/programs/${program_id}/cancel`, { token });
    await reader.until('execution.finished');
    await act(sessionId, 'migrate');
    const moved = await reader.until('session.migrated');
    expect(moved.event).toMatchObject({ data: { state: 'running', from_host_id: from.hostId } });
    expect(typesOf(reader.seen).slice(-3)).toEqual([
      'session.suspended',
      'session.resumed',
      'session.migrated',
    ]);
    await reader.cancel();
    from.close();
  });

  test('tells of calls that wait for an approval, and of what was decided', async () => {
    const token = await tokenOf({ claims: { tenant: 'acme', sub: 'alice', scope: ALL_SCOPES } });
    const tool = {
      description: 'Adds',
      kind: 'code',
      language: 'python',
      code: 'def main():\n    return 1\n',
      approval: 'required',
    };
    await api('PUT', '/v1/tools/careful', { token, body: tool });
    const sessionId = await open();
    const reader = await SessionEventReader.open(sessionId, token);
    const body = { tool_name: 'careful', arguments: {} };
    const ask = async () => {
      const asked = await api('POST', `/v1/sessions/${sessionId}/execute`, { token, body });
      return ExecutionSchema.parse(asked.json).execution_id;
    };
    const decide = async (executionId: string, decision: string) =>
      api('POST', `/v1/executions/${executionId}/approval`, {
        token: await tokenOf({ claims: { tenant: 'acme', sub: 'bob', scope: ALL_SCOPES } }),
        body: { decision },
      });
    const denied = await ask();
    expect((await reader.until('approval.waiting')).event).toMatchObject({
      data: { execution_id: denied, tool_name: 'careful', requested_by: 'alice' },
    });
    await decide(denied, 'deny');
    expect((await reader.until('approval.decided')).event).toMatchObject({
      data: { execution_id: denied, status: 'denied' },
    });
    expect((await reader.until('execution.finished')).event).toMatchObject({
      data: { execution_id: denied, status: 'refused', reason: 'approval_denied', started_at: null },
    });
    const approved = await ask();
    await reader.until('approval.waiting');
    await decide(approved, 'approve');
    expect((await reader.until('execution.finished')).event).toMatchObject({
      data: { execution_id: approved, tool_name: 'careful' },
    });
    expect(typesOf(reader.seen).filter((type) => type.startsWith('approval.'))).toEqual([
      'approval.waiting',
      'approval.decided',
      'approval.waiting',
      'approval.decided',
    ]);
    await reader.cancel();
  });
});
