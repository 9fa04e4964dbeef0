import { env } from 'cloudflare:workers';
import { afterAll, afterEach, beforeAll, describe, expect, test, vi } from 'vitest';
import { ATTACH_TIMEOUT_MS } from '../../../shared/limits.ts';
import { SessionSchema } from '../../../shared/session.ts';
import { DOUBLE_IMAGE, type HostDouble } from '../../fixtures/host-double/host-double.ts';
import { tokenOf } from '../fixture-issuer.ts';
import { api, problemIn } from '../harness/api.ts';
import { connectFakeHost } from '../harness/fake-host.ts';
import { newId } from '../harness/sessions.ts';

const CAPACITY = 2;
let host: HostDouble;
let token: string;

beforeAll(async () => {
  token = await tokenOf({ claims: { tenant: 'acme', sub: 'alice' } });
  host = await connectFakeHost({ capacity: CAPACITY });
});
afterEach(() => {
  vi.useRealTimers();
  host.refuseAttach = undefined;
});
afterAll(() => host.close());

const pool = () => env.POOL.getByName('default');
const place = async (sessionId: string) => pool().place({ image: DOUBLE_IMAGE.digest, sessionId });

/** The host says nothing of its load in these tests: what the pool knows, it knows by itself. */
describe('a place on a host', () => {
  test('is free again when its session is answered, however many come one after the other', async () => {
    for (let count = 0; count < 3 * CAPACITY; count += 1) {
      const body = { tool_name: 'shell', arguments: { command: `call ${count}` } };
      const answer = await api('POST', '/v1/execute', { token, body });
      expect(answer.status, answer.text).toBe(200);
    }
  });

  test('is free again when the host refuses the session', async () => {
    host.refuseAttach = 'host_full';
    for (let count = 0; count < 3 * CAPACITY; count += 1) {
      const answer = await api('POST', '/v1/sessions', { token, body: {} });
      expect(problemIn(answer)).toMatchObject({ code: 'host_full' });
    }
  });

  test('is taken once by creates with one key, which all get the one session', async () => {
    const create = () =>
      api('POST', '/v1/sessions', { token, body: {}, headers: { 'Idempotency-Key': 'one' } });
    const answers = await Promise.all(Array.from({ length: 20 }, create));
    answers.push(await create());
    expect(answers.map(({ status }) => status)).toEqual(answers.map(() => 201));
    const ids = new Set(answers.map(({ json }) => SessionSchema.parse(json).session_id));
    expect(ids.size).toBe(1);
    // A session that is there needs no place, though there is none.
    const others = [await newId(), await newId()];
    for (const id of others) expect(await place(id)).toMatchObject({ ok: true });
    expect((await create()).status).toBe(201);
    for (const sessionId of others) await pool().placed({ sessionId });
  });

  test('is kept while its session is on the way, and no longer than an attach may take', async () => {
    vi.useFakeTimers({ toFake: ['Date'], now: Date.now() });
    const ids = [await newId(), await newId()];
    for (const id of ids) expect(await place(id)).toMatchObject({ ok: true });
    expect(await place(await newId())).toMatchObject({ ok: false, code: 'no_host_available' });
    // The same session again has its place already.
    for (const id of ids) expect(await place(id)).toMatchObject({ ok: true });
    vi.setSystemTime(Date.now() + ATTACH_TIMEOUT_MS + 1);
    expect(await place(await newId())).toMatchObject({ ok: true });
  });
});
