/** What is open when its token is taken back: it ends within the minute, and nothing beside it does. */
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { IssuedTokenSchema, NewApiKeySchema } from '../../../shared/api-key.ts';
import { ExecutionSchema } from '../../../shared/execution.ts';
import { SessionSchema } from '../../../shared/session.ts';
import type { HostDouble } from '../../fixtures/host-double/host-double.ts';
import { ALL_SCOPES, claimsOf, nowS, tokenOf } from '../fixture-issuer.ts';
import { api, request } from '../harness/api.ts';
import { connectFakeHost } from '../harness/fake-host.ts';
import { OPERATOR_TOKEN } from '../issuer-bindings.ts';

const WITHIN_MS = 60_000;
const operator = { token: OPERATOR_TOKEN };

let host: HostDouble;
beforeAll(async () => {
  host = await connectFakeHost({ script: (execution) => execution.started() });
  host.transferScript = (transfer) => transfer.head();
});
afterEach(() => expect(host.failures).toEqual([]));
afterAll(() => host.close());

/** A stream as its reader sees it. */
interface Open {
  what: string;
  /** How it ended: by an event, without one, or the code of a socket's close. */
  over: Promise<string | number>;
  state: { isOver: boolean };
}

function opened(what: string, over: Promise<string | number>): Open {
  const state = { isOver: false };
  void over.then(() => {
    state.isOver = true;
  });
  return { what, over, state };
}

async function events(what: string, path: string, token: string): Promise<Open> {
  const response = await request('GET', path, { token });
  expect(response.status).toBe(200);
  const reader = response.body?.getReader();
  if (reader === undefined) throw new Error(`${what} has no body`);
  const read = async (): Promise<string> => {
    let text = '';
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return text.includes('event: end') ? 'ended' : 'cut';
      text += new TextDecoder().decode(value);
    }
  };
  return opened(what, read());
}

async function socket(what: string, path: string, token: string): Promise<Open> {
  const response = await request('GET', path, { token, headers: { Upgrade: 'websocket' } });
  const { webSocket } = response;
  if (webSocket === null) throw new Error(`${what}: ${response.status} ${await response.text()}`);
  const { promise, resolve } = Promise.withResolvers<number>();
  webSocket.addEventListener('close', ({ code }) => resolve(code));
  webSocket.accept();
  return opened(what, promise);
}

interface Running {
  session: string;
  execution: string;
}

async function begin(token: string): Promise<Running> {
  const created = await api('POST', '/v1/sessions', { token, body: {} });
  expect(created.status, created.text).toBe(201);
  const session = `/v1/sessions/${SessionSchema.parse(created.json).session_id}`;
  const body = { tool_name: 'shell', arguments: { command: 'x' }, detach: true, timeout_ms: 300_000 };
  const begun = ExecutionSchema.parse((await api('POST', `${session}/execute`, { token, body })).json);
  return { session, execution: `${session}/executions/${begun.execution_id}` };
}

/** One of each kind. */
function allKinds({ session, execution }: Running, token: string): Promise<Open[]> {
  return Promise.all([
    events('events of a call', `${execution}/events`, token),
    events('changes of a folder', `${session}/files/?watch`, token),
    socket('events on a socket', `${execution}/events`, token),
    socket('a terminal', `${session}/terminal`, token),
  ]);
}

async function act(method: string, path: string, body?: object): Promise<void> {
  const answer = await api(method, path, body === undefined ? operator : { ...operator, body });
  expect(answer.status, answer.text).toBeLessThan(300);
}

const lived = (claims: object) => claimsOf({ claims: { exp: nowS() + 600, ...claims } });

test('streams, watches, sockets and terminals of a token end with it, and those of others do not', async () => {
  const claims = lived({ tenant: 'cut-a' });
  const revoked = await tokenOf({ claims });
  const running = await begin(revoked);
  const ofRevoked = await allKinds(running, revoked);
  const other = await tokenOf({ claims: lived({ tenant: 'cut-a' }) });
  const ofOther = await allKinds(running, other);

  const subjects = await Promise.all(
    ['bob', 'carol'].map((sub) => tokenOf({ claims: lived({ tenant: 'cut-b', sub }) })),
  );
  const ofSubjects = await Promise.all(
    subjects.map(async (token) => events('of a subject', `${(await begin(token)).execution}/events`, token)),
  );

  const key = await api('POST', '/v1/tenants/cut-c/api-keys', {
    ...operator,
    body: { subject: 'robot', scopes: ALL_SCOPES.split(' ') },
  });
  const { api_key, key_id } = NewApiKeySchema.parse(key.json);
  const issued = await api('POST', '/v1/tokens', { body: { api_key } });
  const keyed = IssuedTokenSchema.parse(issued.json).access_token;
  const ofKey = await events('of a key', `${(await begin(keyed)).execution}/events`, keyed);

  const disabled = await tokenOf({ claims: lived({ tenant: 'cut-d' }) });
  const ofDisabled = await socket('of a tenant', `${(await begin(disabled)).session}/terminal`, disabled);

  const revokedAtMs = Date.now();
  await act('POST', '/v1/tenants/cut-a/revoked-tokens', { jti: claims.jti });
  await act('POST', '/v1/tenants/cut-b/revoked-tokens', { subject: 'bob' });
  await act('DELETE', `/v1/tenants/cut-c/api-keys/${key_id}`);
  await act('POST', '/v1/tenants/cut-d/status', { disabled: true });

  const [ofBob, ofCarol] = ofSubjects;
  const cut = [...ofRevoked, ofBob, ofKey, ofDisabled].filter((open) => open !== undefined);
  const ends = await Promise.all(cut.map(async ({ what, over }) => [what, await over]));
  expect(Date.now() - revokedAtMs).toBeLessThan(WITHIN_MS);
  expect(ends).toEqual([
    ['events of a call', 'cut'],
    ['changes of a folder', 'cut'],
    ['events on a socket', 1008],
    ['a terminal', 1008],
    ['of a subject', 'cut'],
    ['of a key', 'cut'],
    ['of a tenant', 1008],
  ]);
  for (const { what, state } of [...ofOther, ofCarol].filter((open) => open !== undefined)) {
    expect(state.isOver, what).toBe(false);
  }
  // Nothing of the session ended with them.
  const path = running.execution;
  expect((await api('GET', path, { token: other })).json).toMatchObject({ status: 'running' });
  expect((await api('GET', path, { token: revoked })).status).toBe(401);
}, 90_000);
