/** `POST /v1/execute`: a call in a session of its own, which ends with it. */
import { listDurableObjectIds } from 'cloudflare:test';
import { env, exports } from 'cloudflare:workers';
import { describe, expect, test } from 'vitest';
import { ExecutionSchema } from '../../../shared/execution.ts';
import { tokenOf } from '../fixture-issuer.ts';
import { api, problemIn, request } from '../harness/api.ts';
import { alice, eventsOf, host, shell, useScriptedHost } from '../harness/scripted-host.ts';
import { ORIGIN } from '../issuer-bindings.ts';

useScriptedHost();

describe('a call in a session of its own', () => {
  test('gives its result, and the session is gone', async () => {
    const token = await tokenOf({ claims: { tenant: 'once' } });
    const answer = await api('POST', '/v1/execute', { token, body: shell('alone') });
    const execution = ExecutionSchema.parse(answer.json);
    expect(execution).toMatchObject({ status: 'succeeded', stdout: 'alone' });
    await host.until(() => !host.sessions.has(execution.session_id));
    expect((await api('GET', `/v1/sessions/${execution.session_id}`, { token })).status).toBe(404);
    expect((await api('GET', '/v1/sessions', { token })).json).toMatchObject({ sessions: [] });
  });

  test('is streamed too', async () => {
    const token = await alice();
    const response = await request('POST', '/v1/execute', { token, body: shell('alone', { stream: true }) });
    const events = await eventsOf(response);
    expect(events.map(({ event }) => event)).toEqual(['started', 'stdout', 'end']);
  });

  test('with a key runs once, also after its session is gone', async () => {
    const token = await alice();
    const execute = (command: string) =>
      api('POST', '/v1/execute', { token, body: shell(command), headers: { 'Idempotency-Key': 'alone' } });
    const first = ExecutionSchema.parse((await execute('once')).json);
    await host.until(() => !host.sessions.has(first.session_id));
    const second = ExecutionSchema.parse((await execute('once')).json);
    expect(second).toMatchObject({ execution_id: first.execution_id, stdout: 'once' });
    expect(problemIn(await execute('other')).code).toBe('idempotency_conflict');
  });

  test('ends its session also when the client goes away in the middle of it', async () => {
    const known = new Set(host.sessions.keys());
    const client = new AbortController();
    const gone = exports.default
      .fetch(
        new Request(`${ORIGIN}/v1/execute`, {
          method: 'POST',
          headers: { Authorization: `Bearer ${await alice()}`, 'Content-Type': 'application/json' },
          body: JSON.stringify(shell('hold')),
          signal: client.signal,
        }),
      )
      .catch((error: unknown) => error);
    const own = () => [...host.sessions.values()].find((session) => !known.has(session.sessionId));
    await host.until(() => own()?.executions.size === 1);
    const session = own();
    client.abort();
    expect(await gone).toBeInstanceOf(Error);
    for (const execution of session?.executions.values() ?? []) execution.tookInterrupt();
    await host.until(() => own() === undefined);
  });

  test('whose arguments are wrong makes no session', async () => {
    const token = await tokenOf({ claims: { tenant: 'wrong' } });
    const before = (await listDurableObjectIds(env.SESSION)).length;
    const bodies = [
      { tool_name: 'shell', arguments: {} },
      shell('x', { detach: true }),
      { tool_name: 'nothing', arguments: {} },
    ];
    for (const body of bodies) {
      expect([400, 404]).toContain((await api('POST', '/v1/execute', { token, body })).status);
    }
    expect((await listDurableObjectIds(env.SESSION)).length).toBe(before);
  });
});
