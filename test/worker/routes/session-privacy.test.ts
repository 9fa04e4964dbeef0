/** What is another tenant’s, subject’s or session’s answers like what is not there, on every route. */
import { listDurableObjectIds } from 'cloudflare:test';
import { env } from 'cloudflare:workers';
import { describe, expect, test } from 'vitest';
import * as z from 'zod';
import { ExecutionSchema } from '../../../shared/execution.ts';
import { newId, newSessionId } from '../../../shared/ids.ts';
import { configurationOf } from '../../../worker/configuration.ts';
import { sessionObjectName } from '../../../worker/objects/session-name.ts';
import { routes } from '../../../worker/routes/table.ts';
import { type ApiOptions, api, problemIn } from '../harness/api.ts';
import {
  alice,
  bob,
  hold,
  host,
  mallory,
  open,
  run,
  shell,
  useScriptedHost,
} from '../harness/scripted-host.ts';
import { rowsOf, wokenObjects } from '../harness/traces.ts';

useScriptedHost();

const Parameters = z.record(z.string(), z.string());

/** A request to every route below a session, with a body that the route takes. */
function requestsBelow(sessionId: string, executionId: string) {
  return routes
    .filter((route) => route.path.includes('{session_id}'))
    .map((route) => {
      const values = Parameters.parse({
        session_id: sessionId,
        execution_id: executionId,
        process_id: newId('prc'),
        program_id: newId('exe'),
        repair_run_id: 'rpr_x',
        path: 'x',
        stream: 'stdout',
      });
      const path = route.path.replaceAll(/\{([a-z_]+)\}/g, (_, name: string) => values[name] ?? '');
      const body: ApiOptions = route.operationId === 'execute' ? { body: shell('x') } : {};
      if (route.operationId === 'writeStdin') body.body = { data: 'x' };
      if (route.operationId === 'interrupt' || route.operationId === 'updateSession') body.body = {};
      if (route.operationId === 'createSnapshot') body.body = { name: 'x' };
      if (route.operationId === 'rollbackSession') body.body = { snapshot_id: newId('snp') };
      if (route.operationId === 'forkSession') body.body = { count: 1 };
      if (route.operationId === 'createRepairRun') {
        body.body = { code: 'x', model: { tool_name: 'model', name: 'x' } };
      }
      if (route.operationId === 'keepArtifact') body.body = { path: 'x' };
      if (route.operationId === 'filesFrom') body.body = { artifact: 'kept-for-all', path: 'x' };
      if (route.operationId === 'startProcess') body.body = { command: 'x' };
      if (route.operationId === 'waitForProcess') body.body = { exit: true };
      if (route.operationId === 'writeProcessStdin') body.body = { data: 'x' };
      if (route.operationId === 'createProgram') body.body = { language: 'python', code: '1' };
      if (route.operationId === 'answerCalls') body.body = { results: [{ id: newId('tcl'), content: 'x' }] };
      if (route.operationId === 'toolCalls') {
        const call = { name: 'shell', arguments: '{"command": "x"}' };
        body.body = { tool_calls: [{ id: 'c1', type: 'function', function: call }] };
      }
      if (route.access.webSocket === true) body.headers = { Upgrade: 'websocket' };
      return { method: route.method, path, body, operationId: route.operationId };
    })
    .toSorted(
      (left, right) =>
        Number(left.operationId === 'deleteSession') - Number(right.operationId === 'deleteSession'),
    );
}

/** The rows of a session, and what its host was told: neither changes by what was refused. */
async function stateOf(sessionId: string): Promise<unknown> {
  const name = sessionObjectName('acme', sessionId);
  const rows = await rowsOf(env.SESSION.get(env.SESSION.idFromName(name)));
  const { heard, executions } = host.session(sessionId);
  // Acknowledgements of what came before may still be under way.
  const told = heard.filter(({ type }) => type !== 'ack').length;
  const sessions = rows.session?.map((row) => ({ ...Object(row), lastSeq: 0 }));
  return { ...rows, session: sessions, told, started: [...executions.keys()] };
}

describe('what is not the caller’s', () => {
  test('A27: a session of another tenant is not found on any route, and its object does not wake', async () => {
    const token = await mallory();
    const sessionId = await open(await alice());
    const execution = await hold(await alice(), sessionId);
    const awake = await wokenObjects();
    const before = await stateOf(sessionId);
    const requests = requestsBelow(sessionId, execution.execution_id);
    expect(requests.length).toBeGreaterThanOrEqual(10);
    for (const { method, path, body } of requests) {
      const answer = await api(method, path, { token, ...body });
      expect([answer.status, problemIn(answer).code], `${method} ${path}`).toEqual([404, 'not_found']);
    }
    // The tenant that asks has an object of its own, which counts its requests.
    expect((await wokenObjects()).length).toBeLessThanOrEqual(awake.length + 1);
    expect(await stateOf(sessionId)).toEqual(before);
    const ended = await api('DELETE', `/v1/sessions/${sessionId}`, { token: await alice() });
    expect(ended.status).toBe(204);
  });

  test('A27: ids that nobody was given look the same, and wake nothing', async () => {
    const { tagKey } = await configurationOf(env);
    const sessionId = await open(await alice());
    const ids = [
      `${sessionId.slice(0, -1)}${sessionId.endsWith('A') ? 'B' : 'A'}`,
      sessionId.slice(0, -1),
      `${sessionId}A`,
      sessionId.toUpperCase(),
      'ses_',
      'x',
    ];
    const awake = (await listDurableObjectIds(env.SESSION)).length;
    const token = await alice();
    const missing = problemIn(
      await api('GET', `/v1/sessions/${await newSessionId(tagKey, 'globex')}`, { token }),
    );
    for (const id of ids) {
      const problem = problemIn(await api('GET', `/v1/sessions/${id}`, { token }));
      expect({ ...problem, request_id: '' }).toEqual({ ...missing, request_id: '' });
    }
    expect((await listDurableObjectIds(env.SESSION)).length).toBe(awake);
  });

  test('A30: a session of another subject of the tenant is not found on any route', async () => {
    const token = await bob();
    const owner = await alice();
    const sessionId = await open(owner);
    const execution = await hold(owner, sessionId);
    const before = await stateOf(sessionId);
    for (const { method, path, body } of requestsBelow(sessionId, execution.execution_id)) {
      const answer = await api(method, path, { token, ...body });
      expect([answer.status, problemIn(answer).code], `${method} ${path}`).toEqual([404, 'not_found']);
    }
    expect(await stateOf(sessionId)).toEqual(before);
    const still = await api('GET', `/v1/sessions/${sessionId}/executions/${execution.execution_id}`, {
      token: owner,
    });
    expect(ExecutionSchema.parse(still.json).status).toBe('running');
    await api('DELETE', `/v1/sessions/${sessionId}`, { token: owner });
  });

  test('A28 and A29: an execution or a place in a stream of another session is not found', async () => {
    const token = await alice();
    const [mine, foreign] = [await open(token), await open(await mallory())];
    const own = await run(token, mine, 'mine');
    const other = await run(await mallory(), foreign, 'theirs');
    const siblings = await open(token);
    const sibling = await hold(token, siblings);
    const before = await stateOf(siblings);
    for (const executionId of [other.execution_id, sibling.execution_id, newId('exe'), 'exe_x', 'x']) {
      for (const suffix of ['', '/events', '/receipt']) {
        const path = `/v1/sessions/${mine}/executions/${executionId}${suffix}`;
        expect((await api('GET', path, { token })).status, path).toBe(404);
      }
      const stdin = `/v1/sessions/${mine}/executions/${executionId}/stdin`;
      expect((await api('POST', stdin, { token, body: { data: 'x' } })).status).toBe(404);
    }
    expect(await stateOf(siblings)).toEqual(before);
    const stdin = `/v1/sessions/${siblings}/executions/${sibling.execution_id}/stdin`;
    expect((await api('POST', stdin, { token, body: { data: 'x' } })).status).toBe(204);
    const events = `/v1/sessions/${mine}/executions/${own.execution_id}/events`;
    const at = (id: string) => api('GET', events, { token, headers: { 'Last-Event-ID': id } });
    expect((await at(`${other.execution_id}:0:0:0`)).status).toBe(404);
    expect(problemIn(await at('42')).violations?.[0]?.path).toBe('header.Last-Event-ID');
    expect((await at(`${own.execution_id}:0:0:0`)).status).toBe(200);
    for (const suffix of ['', '/events', '/receipt']) {
      const path = `/v1/sessions/${mine}/executions/${own.execution_id}${suffix}`;
      expect((await api('GET', path, { token })).status, path).toBe(200);
    }
  });

  test('every route below a session serves its owner', async () => {
    const token = await alice();
    const sessionId = await open(token);
    const execution = await hold(token, sessionId);
    await api('PUT', '/v1/artifacts/kept-for-all/content', { token, raw: 'x' });
    for (const { method, path, body, operationId } of requestsBelow(sessionId, execution.execution_id)) {
      // These two answer when the execution has ended, which is held here.
      if (operationId === 'execute' || operationId === 'streamExecution') continue;
      // It ends with the session.
      if (operationId === 'streamSessionEvents') continue;
      // Programs have their own tests: the host of these tests runs none, and a socket is no answer to read.
      if (operationId === 'openTerminal' || /\/(?:processes|programs\/)/.test(path)) continue;
      // There is no second host to move to, and no snapshot to go back to.
      if (operationId === 'migrateSession' || operationId === 'rollbackSession') continue;
      // These need a model and a run: they have their own tests.
      if (path.includes('/repair_runs')) continue;
      const answer = await api(method, path, { token, ...body });
      const expected = operationId === 'getReceipt' ? 409 : 204;
      expect(answer.status, `${method} ${path} ${answer.text}`).toBeLessThanOrEqual(expected);
    }
  });
});
