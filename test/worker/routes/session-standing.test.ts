import { evictDurableObject } from 'cloudflare:test';
import { env } from 'cloudflare:workers';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { type Session, SessionSchema } from '../../../shared/session.ts';
import type { ShellStanding } from '../../../shared/shell-standing.ts';
import { ForkedSchema, SnapshotSchema } from '../../../shared/snapshot-resource.ts';
import type { HostDouble } from '../../fixtures/host-double/host-double.ts';
import { tokenOf } from '../fixture-issuer.ts';
import { api } from '../harness/api.ts';
import { eventually } from '../harness/eventually.ts';
import { connectFakeHost } from '../harness/fake-host.ts';

const TENANT = 'standing-tenant';
const BEGAN = { workdir: '/workspace', environment: { GREETING: 'hello', LEVEL: '1' } };
const IN_SRC: ShellStanding = {
  working_directory: '/workspace/src',
  environment: { LEVEL: '2', TOKEN: 't' },
};
const SHOWN_IN_SRC = {
  workdir: '/workspace/src',
  environment: { GREETING: 'hello', LEVEL: '2', TOKEN: 't' },
};

let host: HostDouble;
/** What the shell of the host says with the end of the next call. */
let said: ShellStanding | undefined;
let status: 'succeeded' | 'failed' = 'succeeded';
let sessionId: string;

beforeAll(async () => {
  host = await connectFakeHost({
    script: async (execution) => {
      execution.started();
      await execution.finish({ status, ...(said === undefined ? {} : { shell: said }) });
    },
  });
});
afterAll(() => host.close());
beforeEach(async () => {
  status = 'succeeded';
  sessionId = await open({ env: BEGAN.environment });
});

async function ask(method: string, path: string, body?: object) {
  const token = await tokenOf({ claims: { tenant: TENANT, sub: 'alice' } });
  return api(method, path, { token, ...(body === undefined ? {} : { body }) });
}

async function open(body: object): Promise<string> {
  const answer = await ask('POST', '/v1/sessions', body);
  expect(answer.status, answer.text).toBe(201);
  return SessionSchema.parse(answer.json).session_id;
}

async function view(id = sessionId): Promise<Session> {
  return SessionSchema.parse((await ask('GET', `/v1/sessions/${id}`)).json);
}

async function run(standing: ShellStanding | undefined, more: object = {}): Promise<void> {
  said = standing;
  const body = { tool_name: 'shell', arguments: { command: 'cd somewhere' }, ...more };
  const answer = await ask('POST', `/v1/sessions/${sessionId}/execute`, body);
  expect(answer, answer.text).toMatchObject({ status: 200, json: { status } });
}

describe('a session shows where its shell stands', () => {
  test('as it was made, until a call has moved it, and then where that left it', async () => {
    expect(await view()).toMatchObject(BEGAN);
    await run(undefined);
    expect(await view()).toMatchObject(BEGAN);
    await run(IN_SRC);
    expect(await view()).toMatchObject(SHOWN_IN_SRC);
    await run(undefined);
    expect(await view()).toMatchObject(SHOWN_IN_SRC);
    await run({ working_directory: '/', environment: { GREETING: null } });
    const now = await view();
    expect([now.workdir, now.environment]).toEqual(['/', { LEVEL: '1' }]);
  });

  test('and says where its variables are too much to be shown', async () => {
    await run({ working_directory: '/tmp', environment: null });
    expect(await view()).toMatchObject({ ...BEGAN, workdir: '/tmp', environment_truncated: true });
    await run(IN_SRC);
    expect((await view()).environment_truncated).toBeUndefined();
  });

  test('also after its object was lost, and after a call that failed', async () => {
    status = 'failed';
    await run(IN_SRC);
    await evictDurableObject(env.SESSION.get(env.SESSION.idFromName(`${TENANT}:${sessionId}`)));
    expect(await view()).toMatchObject(SHOWN_IN_SRC);
  });

  test('suspended and brought back too', async () => {
    await run(IN_SRC);
    const suspended = await ask('POST', `/v1/sessions/${sessionId}/suspend`);
    expect(suspended.json).toMatchObject({ state: 'suspended', ...SHOWN_IN_SRC });
    await run(undefined);
    expect(await view()).toMatchObject({ state: 'running', generation: 1, ...SHOWN_IN_SRC });
  });

  test('as it was before, once it was taken back to that', async () => {
    await run(IN_SRC);
    const path = `/v1/sessions/${sessionId}`;
    const kept = SnapshotSchema.parse((await ask('POST', `${path}/snapshots`, { name: 'src' })).json);
    await run({ working_directory: '/tmp', environment: {} });
    expect(await view()).toMatchObject({ ...BEGAN, workdir: '/tmp' });
    const back = await ask('POST', `${path}/rollback`, { snapshot_id: kept.snapshot_id });
    expect(back.json).toMatchObject(SHOWN_IN_SRC);
    expect(await view()).toMatchObject(SHOWN_IN_SRC);
  });

  test('as it was before a call that failed and is taken back', async () => {
    await run(IN_SRC);
    status = 'failed';
    await run({ working_directory: '/lost', environment: {} }, { rollback: 'on_failure' });
    await eventually(async () =>
      expect(await view()).toMatchObject({ state: 'running', generation: 1, ...SHOWN_IN_SRC }),
    );
  });

  test('which forks, and sessions of its snapshots, begin with', async () => {
    await run(IN_SRC);
    const path = `/v1/sessions/${sessionId}`;
    const { sessions } = ForkedSchema.parse((await ask('POST', `${path}/fork`, {})).json);
    const kept = SnapshotSchema.parse((await ask('POST', `${path}/snapshots`, { name: 'of src' })).json);
    await run({ working_directory: '/elsewhere', environment: {} });
    const made = await open({ from_snapshot: kept.snapshot_id });
    for (const id of [...sessions.map(({ session_id }) => session_id), made]) {
      expect(await view(id)).toMatchObject(SHOWN_IN_SRC);
    }
  });

  test('and where it began, once its sandbox is lost', async () => {
    await run(IN_SRC);
    host.session(sessionId).send({ type: 'sandbox_lost', reason: 'crashed' });
    await eventually(async () => expect(await view()).toMatchObject({ sandbox_id: null, ...BEGAN }));
    await run(undefined);
    expect(await view()).toMatchObject(BEGAN);
  });
});
