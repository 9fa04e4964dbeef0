import { env } from 'cloudflare:workers';
import { afterEach, describe, expect, test, vi } from 'vitest';
import {
  generatePrivateJwk,
  importPrivateKey,
  type PrivateJwk,
  publicPart,
} from '../../../../shared/ed25519.ts';
import { toBase64 } from '../../../../shared/encoding.ts';
import { enrollmentMessage } from '../../../../shared/host-api.ts';
import { configurationOf } from '../../../../worker/configuration.ts';
import { poolOfEnrollmentToken } from '../../../../worker/objects/pool/enrollment-token.ts';
import type { Enroll } from '../../../../worker/objects/pool/port.ts';
import { rowsOf } from '../../harness/traces.ts';
import { ORIGIN } from '../../issuer-bindings.ts';

const pool = env.POOL.getByName('default');
afterEach(() => vi.useRealTimers());

async function newToken(name = 'default'): Promise<string> {
  const created = await env.POOL.getByName(name).createEnrollmentToken({ pool: name });
  if (!created.ok) throw new Error(created.detail);
  return created.value.enrollment_token;
}

async function newNonce(): Promise<string> {
  const challenge = await pool.challenge();
  if (!challenge.ok) throw new Error(challenge.detail);
  return challenge.value.nonce;
}

async function request(
  token: string,
  options: {
    nonce?: string;
    jwk?: PrivateJwk;
    signed?: { nonce?: string; origin?: string; x?: string };
  } = {},
): Promise<Enroll> {
  const nonce = options.nonce ?? (await newNonce());
  const jwk = options.jwk ?? (await generatePrivateJwk());
  const message = enrollmentMessage({
    origin: options.signed?.origin ?? ORIGIN,
    nonce: options.signed?.nonce ?? nonce,
    publicKeyX: options.signed?.x ?? jwk.x,
  });
  const signature = await crypto.subtle.sign('Ed25519', await importPrivateKey(jwk), message);
  return {
    enrollment_token: token,
    nonce,
    public_key: publicPart(jwk),
    signature: toBase64(new Uint8Array(signature)),
    agent_version: 'test',
  };
}

describe('an enrolment token', () => {
  test('lets exactly one of a hundred hosts in that use it at once (A50)', async () => {
    const token = await newToken();
    const requests = await Promise.all(Array.from({ length: 100 }, () => request(token)));
    const answers = await Promise.all(requests.map((one) => pool.enroll(one)));
    expect(answers.filter(({ ok }) => ok)).toHaveLength(1);
    const refused = answers.filter((answer) => !answer.ok).map((answer) => !answer.ok && answer.code);
    expect(new Set(refused)).toEqual(new Set(['enrollment_refused']));
  });

  test('is refused after its time, in another pool, and when nobody made it (A50)', async () => {
    const token = await newToken();
    const hosts = async () => (await rowsOf(env.POOL.get(env.POOL.idFromName('default')))).host;
    const before = await hosts();
    const elsewhere = await env.POOL.getByName('other').enroll(await request(token));
    expect(elsewhere).toMatchObject({ ok: false, code: 'enrollment_refused' });
    expect(await pool.enroll(await request(`enr_default.${'a'.repeat(43)}`))).toMatchObject({
      code: 'enrollment_refused',
    });
    vi.useFakeTimers({ toFake: ['Date'], now: Date.now() + 901_000 });
    expect(await pool.enroll(await request(token))).toMatchObject({ code: 'enrollment_refused' });
    expect(before).toEqual(expect.any(Array));
    expect(await hosts()).toEqual(before);
    vi.useRealTimers();
    expect(await pool.enroll(await request(token))).toMatchObject({ ok: true });
    expect(await hosts()).toHaveLength((before?.length ?? 0) + 1);
  });

  test('is not used up by a wrong proof', async () => {
    const token = await newToken();
    const other = await generatePrivateJwk();
    const wrong = [
      await request(token, { signed: { origin: 'https://evil.test' } }),
      await request(token, { signed: { nonce: await newNonce() } }),
      await request(token, { signed: { x: other.x } }),
      { ...(await request(token)), public_key: publicPart(other) },
      await request(token, { nonce: 'a'.repeat(54) }),
    ];
    for (const one of wrong)
      expect(await pool.enroll(one)).toMatchObject({ ok: false, code: 'proof_refused' });
    expect(await pool.enroll(await request(token))).toMatchObject({ ok: true });
  });

  test('names its pool', async () => {
    const { tagKey } = await configurationOf(env);
    const token = await newToken('gpu-1');
    expect(await poolOfEnrollmentToken(tagKey, token)).toBe('gpu-1');
    const forged = [
      'enr_default.short',
      `enr_../x.${'a'.repeat(65)}`,
      `enr_gpu-1.${'a'.repeat(65)}`,
      token.replace('gpu-1', 'gpu-2'),
      `${token.slice(0, -1)}${token.endsWith('A') ? 'Q' : 'A'}`,
      token.slice(0, -22),
    ];
    for (const one of forged) expect(await poolOfEnrollmentToken(tagKey, one)).toBeUndefined();
  });
});

describe('a nonce of enrolment', () => {
  test('is good once, and for a minute', async () => {
    const nonce = await newNonce();
    expect(await pool.enroll(await request(await newToken(), { nonce }))).toMatchObject({ ok: true });
    expect(await pool.enroll(await request(await newToken(), { nonce }))).toMatchObject({
      code: 'enrollment_refused',
    });
    const old = await newNonce();
    const token = await newToken();
    vi.useFakeTimers({ toFake: ['Date'], now: Date.now() + 61_000 });
    expect(await pool.enroll(await request(token, { nonce: old }))).toMatchObject({ code: 'proof_refused' });
  });
});

describe('a host key', () => {
  test('that enrols again keeps its host id', async () => {
    const jwk = await generatePrivateJwk();
    const first = await pool.enroll(await request(await newToken(), { jwk }));
    const second = await pool.enroll(await request(await newToken(), { jwk }));
    if (!first.ok || !second.ok) throw new Error('refused');
    expect(second.value.host_id).toBe(first.value.host_id);
  });

  test('of a host that was revoked enrols no more, and the token is good for another key still', async () => {
    const jwk = await generatePrivateJwk();
    const first = await pool.enroll(await request(await newToken(), { jwk }));
    if (!first.ok) throw new Error('refused');
    expect(await pool.revokeHost({ hostId: first.value.host_id })).toMatchObject({ ok: true });
    const token = await newToken();
    expect(await pool.enroll(await request(token, { jwk }))).toMatchObject({ code: 'enrollment_refused' });
    const anew = await pool.enroll(await request(token));
    expect(anew).toMatchObject({ ok: true });
    expect(anew.ok && anew.value.host_id).not.toBe(first.value.host_id);
  });

  test('that enrols again while its host is revoked is revoked in the end', async () => {
    for (let round = 0; round < 10; round += 1) {
      const jwk = await generatePrivateJwk();
      const first = await pool.enroll(await request(await newToken(), { jwk }));
      if (!first.ok) throw new Error('refused');
      const hostId = first.value.host_id;
      const again = await Promise.all(
        Array.from({ length: 4 }, async () => request(await newToken(), { jwk })),
      );
      const [one, two, ...late] = again.map((enroll) => () => pool.enroll(enroll));
      await Promise.all([one?.(), two?.(), pool.revokeHost({ hostId }), ...late.map((enroll) => enroll())]);
      const hosts = await pool.listHosts();
      expect(hosts.ok && hosts.value.filter(({ host_id }) => host_id === hostId)).toEqual([]);
      expect(await pool.enroll(await request(await newToken(), { jwk }))).toMatchObject({
        code: 'enrollment_refused',
      });
    }
  });

  test('of small order does not enrol', async () => {
    const token = await newToken();
    const good = await request(token);
    const weak = { ...good, public_key: { ...good.public_key, x: 'A'.repeat(43) } };
    expect(await pool.enroll(weak)).toMatchObject({ code: 'proof_refused' });
  });
});
