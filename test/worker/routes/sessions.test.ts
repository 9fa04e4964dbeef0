/** Sessions by the front door: made once, read, listed, deleted. */
import { runInDurableObject } from 'cloudflare:test';
import { env } from 'cloudflare:workers';
import { describe, expect, test } from 'vitest';
import { SessionListSchema, SessionSchema } from '../../../shared/session.ts';
import { tokenOf } from '../fixture-issuer.ts';
import { type ApiAnswer, api, problemIn } from '../harness/api.ts';
import { alice, bob, host, mallory, open, shell, useScriptedHost } from '../harness/scripted-host.ts';

useScriptedHost();

describe('a session', () => {
  test('is created with its place, read, listed, deleted, and then not found', async () => {
    const token = await alice();
    const created = await api('POST', '/v1/sessions', { token, body: { metadata: { project: 'x' } } });
    expect(created.status).toBe(201);
    const session = SessionSchema.parse(created.json);
    expect(session).toMatchObject({
      state: 'running',
      owner: { tenant: 'acme', subject: 'alice' },
      metadata: { project: 'x' },
      host_id: host.hostId,
    });
    const path = `/v1/sessions/${session.session_id}`;
    expect(created.headers.get('Location')).toBe(path);
    expect((await api('GET', path, { token })).json).toMatchObject({ session_id: session.session_id });
    const listed = SessionListSchema.parse((await api('GET', '/v1/sessions', { token })).json);
    expect(listed.sessions.map((entry) => entry.session_id)).toContain(session.session_id);
    const deleted = await api('DELETE', path, { token });
    expect(deleted.status).toBe(204);
    expect(deleted.text).toBe('');
    for (const method of ['DELETE', 'GET']) expect((await api(method, path, { token })).status).toBe(404);
    const left = SessionListSchema.parse((await api('GET', '/v1/sessions', { token })).json);
    expect(left.sessions.map((entry) => entry.session_id)).not.toContain(session.session_id);
  });

  test('is listed to its own subject only, page by page, each once', async () => {
    const claims = { tenant: 'pages', sub: 'carol' };
    const token = await tokenOf({ claims });
    const made = [];
    for (let count = 0; count < 5; count += 1) made.push(await open(token));
    const seen: string[] = [];
    let cursor: string | null = null;
    do {
      const query: string = cursor === null ? '' : `&cursor=${encodeURIComponent(cursor)}`;
      const answer: ApiAnswer = await api('GET', `/v1/sessions?limit=2${query}`, { token });
      const page = SessionListSchema.parse(answer.json);
      expect(page.sessions.length).toBeLessThanOrEqual(2);
      seen.push(...page.sessions.map((entry) => entry.session_id));
      cursor = page.next_cursor;
    } while (cursor !== null && seen.length < 10);
    expect(seen.toSorted()).toEqual(made.toSorted());
    const other = await tokenOf({ claims: { ...claims, sub: 'dave' } });
    expect((await api('GET', '/v1/sessions', { token: other })).json).toMatchObject({ sessions: [] });
    const bad = await api('GET', '/v1/sessions?cursor=!', { token });
    expect(problemIn(bad).violations?.[0]?.path).toBe('query.cursor');
  });

  test('needs an image that a host has', async () => {
    const answer = await api('POST', '/v1/sessions', { token: await alice(), body: { image: 'nowhere' } });
    expect(problemIn(answer)).toMatchObject({ status: 422, code: 'image_not_found' });
  });

  test('that its host refuses is refused for the same reason', async () => {
    host.refuseAttach = 'host_full';
    const answer = await api('POST', '/v1/sessions', { token: await alice(), body: {} });
    host.refuseAttach = undefined;
    expect(problemIn(answer)).toMatchObject({ status: 503, code: 'host_full', retryable: true });
  });
});

describe('Idempotency-Key of a create', () => {
  const withKey = (key: string) => ({ 'Idempotency-Key': key });

  test('gives one session however often it comes, also at once', async () => {
    const token = await alice();
    const create = () =>
      api('POST', '/v1/sessions', { token, body: { metadata: { n: '1' } }, headers: withKey('create-1') });
    const answers = await Promise.all([create(), create(), create()]);
    answers.push(await create());
    expect(answers.map((answer) => answer.status)).toEqual([201, 201, 201, 201]);
    const ids = answers.map((answer) => SessionSchema.parse(answer.json).session_id);
    expect(new Set(ids).size).toBe(1);
    const changed = await api('POST', '/v1/sessions', {
      token,
      body: { metadata: { n: '2' } },
      headers: withKey('create-1'),
    });
    expect(problemIn(changed)).toMatchObject({ status: 422, code: 'idempotency_conflict' });
    await api('DELETE', `/v1/sessions/${ids[0]}`, { token });
    expect(problemIn(await create())).toMatchObject({ status: 410, code: 'session_deleted' });
  });

  test('A33: of another tenant or subject is another key', async () => {
    const create = async (token: string) => open(token, { headers: withKey('shared-key') });
    const ids = [await create(await alice()), await create(await mallory()), await create(await bob())];
    expect(new Set(ids).size).toBe(3);
    expect(await create(await alice())).toBe(ids[0]);
  });

  test.each([
    ['empty', ''],
    ['with a space', 'a b'],
    ['over 255 characters', 'x'.repeat(256)],
  ])('that is %s is refused', async (_name, key) => {
    const answer = await api('POST', '/v1/sessions', {
      token: await alice(),
      body: {},
      headers: withKey(key),
    });
    expect(problemIn(answer).violations?.[0]?.path).toBe('header.Idempotency-Key');
  });
});

describe('R24: an object that is reset in the middle of a call', () => {
  /** What a deploy does to an object. */
  function reset(sessionId: string): Promise<void> {
    const stub = env.SESSION.get(env.SESSION.idFromName(`acme:${sessionId}`));
    return runInDurableObject(stub, (_object, state) => state.abort('reset by the test')).then(
      () => {},
      () => {},
    );
  }

  test('gives a retryable 503, and a repeat with the same key finds the one execution', async () => {
    const token = await alice();
    const sessionId = await open(token);
    const execute = () =>
      api('POST', `/v1/sessions/${sessionId}/execute`, {
        token,
        body: shell('hold'),
        headers: { 'Idempotency-Key': 'deploy' },
      });
    const cut = execute();
    await host.until(() => host.session(sessionId).executions.size === 1);
    await reset(sessionId);
    const refused = await cut;
    expect(problemIn(refused)).toMatchObject({ status: 503, code: 'object_reset', retryable: true });
    expect(refused.headers.get('Retry-After')).toBe('1');
    await host.until(() => !host.session(sessionId).isLinked);
    await host.session(sessionId).connect();
    const repeated = execute();
    const [execution] = host.session(sessionId).executions.values();
    await host.until(() => host.session(sessionId).isLinked);
    await api('POST', `/v1/sessions/${sessionId}/interrupt`, { token });
    expect((await repeated).json).toMatchObject({ execution_id: execution?.id, status: 'interrupted' });
    expect(host.session(sessionId).executions.size).toBe(1);
  });

  test('is not noticed by reads of the same moment', async () => {
    const token = await alice();
    const sessionId = await open(token);
    for (let round = 0; round < 5; round += 1) {
      const read = () => api('GET', `/v1/sessions/${sessionId}`, { token });
      const [, ...answers] = await Promise.all([reset(sessionId), read(), read(), read()]);
      expect(answers.map((answer) => answer.status)).toEqual([200, 200, 200]);
    }
  });
});
