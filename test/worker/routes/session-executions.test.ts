import { describe, expect, test } from 'vitest';
import { ExecutionSchema, parseCursor } from '../../../shared/execution.ts';
import { newId } from '../../../shared/ids.ts';
import { ReceiptExportSchema, verifyChain } from '../../../shared/receipt-verify.ts';
import { tokenOf } from '../fixture-issuer.ts';
import { api, problemIn, request } from '../harness/api.ts';
import { alice, eventsOf, hold, host, open, run, shell, useScriptedHost } from '../harness/scripted-host.ts';

useScriptedHost();

describe('an execution', () => {
  test('answers with its result, and is in the history of its session', async () => {
    const token = await alice();
    const sessionId = await open(token);
    const done = await run(token, sessionId, 'hello');
    expect(done).toMatchObject({ status: 'succeeded', stdout: 'hello', session_id: sessionId });
    const failed = await run(token, sessionId, 'fail');
    expect(failed).toMatchObject({ status: 'failed', exit_code: 3, stderr: 'no\n' });
    const base = `/v1/sessions/${sessionId}/executions`;
    const list = await api('GET', `${base}?limit=1`, { token });
    expect(list.json).toMatchObject({
      executions: [{ execution_id: failed.execution_id }],
      next_cursor: expect.any(String),
    });
    const inBase64 = await api('GET', `${base}/${done.execution_id}?encoding=base64`, { token });
    expect(inBase64.json).toMatchObject({ stdout: btoa('hello'), encoding: 'base64' });
    expect((await api('GET', `${base}/${done.execution_id}?encoding=hex`, { token })).status).toBe(400);
  });

  test('is signed: its receipts verify with the keys of the export', async () => {
    const token = await alice();
    const sessionId = await open(token);
    await run(token, sessionId, 'one');
    const second = await run(token, sessionId, 'two');
    const exported = await api('GET', `/v1/sessions/${sessionId}/receipts`, { token });
    const { receipts, keys } = ReceiptExportSchema.parse(exported.json);
    expect(await verifyChain(receipts, keys, sessionId)).toMatchObject({ ok: true });
    const one = await api('GET', `/v1/sessions/${sessionId}/executions/${second.execution_id}/receipt`, {
      token,
    });
    expect(one.json).toEqual(receipts[1]);
    expect(second.receipt).toEqual(receipts[1]);
    const part = await api('GET', `/v1/sessions/${sessionId}/receipts?limit=1`, { token });
    expect(part.json).toMatchObject({ receipts: [receipts[0]], next_after: 1 });
    const rest = await api('GET', `/v1/sessions/${sessionId}/receipts?after=1&limit=1`, { token });
    expect(rest.json).toMatchObject({ receipts: [receipts[1]], next_after: null });
    for (const query of ['after=-1', 'limit=0', 'limit=1000000', 'limit=x']) {
      expect((await api('GET', `/v1/sessions/${sessionId}/receipts?${query}`, { token })).status).toBe(400);
    }
  });

  test.each([
    ['the Accept header', { headers: { Accept: 'application/json;q=0.5, text/event-stream' } }],
    ['the body', { stream: true }],
  ])('is streamed when %s asks for it, and again from any place', async (_name, how) => {
    const token = await alice();
    const sessionId = await open(token);
    const response = await request('POST', `/v1/sessions/${sessionId}/execute`, {
      token,
      body: shell('hello', 'stream' in how ? { stream: true } : {}),
      ...('headers' in how ? { headers: how.headers } : {}),
    });
    expect(response.status).toBe(200);
    expect(response.headers.get('Content-Type')).toBe('text/event-stream');
    expect(response.headers.get('Request-Id')).toMatch(/^req_/);
    expect(response.headers.get('RateLimit-Limit')).not.toBeNull();
    const events = await eventsOf(response);
    expect(events.map(({ event }) => event)).toEqual(['started', 'stdout', 'end']);
    expect(events[1]?.data).toMatchObject({ text: 'hello', offset: 0 });
    const cursor = parseCursor(events[0]?.id ?? '');
    if (cursor === undefined) throw new Error('each event must have an id');
    const again = await request('GET', `/v1/sessions/${sessionId}/executions/${cursor.executionId}/events`, {
      token,
      headers: { 'Last-Event-ID': events[0]?.id ?? '' },
    });
    expect(await eventsOf(again)).toEqual(events.slice(1));
  });

  test('is one JSON answer when events are not acceptable', async () => {
    const token = await alice();
    const sessionId = await open(token);
    for (const accept of ['*/*', 'application/json', 'text/event-stream;q=0']) {
      const answer = await api('POST', `/v1/sessions/${sessionId}/execute`, {
        token,
        body: shell('x'),
        headers: { Accept: accept },
      });
      expect(answer.headers.get('Content-Type')).toBe('application/json');
    }
  });

  test('that is detached answers 202 with the place where it can be read', async () => {
    const token = await alice();
    const sessionId = await open(token);
    const answer = await api('POST', `/v1/sessions/${sessionId}/execute`, {
      token,
      body: shell('hold', { detach: true }),
    });
    expect(answer.status).toBe(202);
    const place = answer.headers.get('Location') ?? '';
    const read = ExecutionSchema.parse((await api('GET', place, { token })).json);
    expect(place).toBe(`/v1/sessions/${sessionId}/executions/${read.execution_id}`);
    const pending = await api('GET', `${place}/receipt`, { token });
    expect(problemIn(pending)).toMatchObject({ status: 409, code: 'receipt_pending' });
    const stopped = await api('POST', `/v1/sessions/${sessionId}/interrupt`, { token });
    expect(stopped.json).toEqual({ execution_id: read.execution_id });
    const events = await eventsOf(await request('GET', `${place}/events`, { token }));
    expect(events.at(-1)).toMatchObject({ event: 'end', data: { execution: { status: 'interrupted' } } });
  });

  test('with a key runs once, and the key with another call is a conflict', async () => {
    const token = await alice();
    const sessionId = await open(token);
    const execute = (command: string) =>
      api('POST', `/v1/sessions/${sessionId}/execute`, {
        token,
        body: shell(command),
        headers: { 'Idempotency-Key': 'k1' },
      });
    const answers = await Promise.all([execute('once'), execute('once')]);
    answers.push(await execute('once'));
    const ids = answers.map((answer) => ExecutionSchema.parse(answer.json).execution_id);
    expect(new Set(ids).size).toBe(1);
    expect(host.session(sessionId).executions.size).toBe(1);
    expect(problemIn(await execute('twice'))).toMatchObject({ status: 422, code: 'idempotency_conflict' });
    expect(host.session(sessionId).executions.size).toBe(1);
  });

  test('takes input as bytes and as JSON until its end, with the scope of its tool', async () => {
    const token = await alice();
    const sessionId = await open(token);
    const { execution_id: id } = await run(token, sessionId, 'cat', { detach: true });
    await host.until(() => host.session(sessionId).executions.has(id));
    const path = `/v1/sessions/${sessionId}/executions/${id}/stdin`;
    const bytes = new Uint8Array([0, 255, 10]);
    const octets = { 'Content-Type': 'application/octet-stream' };
    expect((await api('POST', path, { token, raw: bytes, headers: octets })).status).toBe(204);
    expect((await api('POST', path, { token, body: { data: 'é' } })).status).toBe(204);
    expect((await api('POST', path, { token, body: { data: 'AA==', encoding: 'base64' } })).status).toBe(204);
    const bad = await api('POST', path, { token, body: { data: 'AA', encoding: 'base64' } });
    expect(problemIn(bad).violations?.[0]?.path).toBe('body.data');
    expect(
      (await api('POST', path, { token, raw: 'x', headers: { 'Content-Type': 'text/plain' } })).status,
    ).toBe(415);
    const large = await api('POST', path, { token, raw: new Uint8Array(1_048_577), headers: octets });
    expect(problemIn(large).code).toBe('payload_too_large');
    const pythonOnly = await tokenOf({ claims: { scope: 'tools:python' } });
    const refused = await api('POST', path, { token: pythonOnly, body: { data: 'x' } });
    expect(refused.status).toBe(403);
    expect(refused.headers.get('WWW-Authenticate')).toContain('scope="tools:shell"');
    expect((await api('POST', `${path}?eof=true`, { token, headers: octets })).status).toBe(204);
    const events = await eventsOf(
      await request('GET', `/v1/sessions/${sessionId}/executions/${id}/events?encoding=base64`, { token }),
    );
    const output = events.find(({ event }) => event === 'stdout');
    expect(output?.data).toMatchObject({ text: btoa('\x00\xff\n\xc3\xa9\x00') });
    const late = await api('POST', path, { token, body: { data: 'x' } });
    expect(problemIn(late)).toMatchObject({ status: 409, code: 'execution_not_running' });
  });

  test('that is interrupted by name is the one that stops', async () => {
    const token = await alice();
    const sessionId = await open(token);
    const held = await hold(token, sessionId);
    const path = `/v1/sessions/${sessionId}/interrupt`;
    const none = await api('POST', path, { token, body: { execution_id: newId('exe') } });
    expect(none.status).toBe(404);
    const stopped = await api('POST', path, { token, body: { execution_id: held.execution_id } });
    expect(stopped.json).toEqual({ execution_id: held.execution_id });
    await host.until(() => host.session(sessionId).heard.some((frame) => frame.type === 'ack'));
    expect((await api('POST', path, { token, body: { execution_id: 'x' } })).status).toBe(400);
  });
});
