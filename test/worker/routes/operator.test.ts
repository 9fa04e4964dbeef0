import { listDurableObjectIds } from 'cloudflare:test';
import { env } from 'cloudflare:workers';
import { expect, test } from 'vitest';
import { generatePrivateJwk, publicPart } from '../../../shared/ed25519.ts';
import { EnrollmentChallengeSchema, ROUTES } from '../../../shared/host-api.ts';
import { configurationOf } from '../../../worker/configuration.ts';
import { nonceExpiry } from '../../../worker/objects/pool/nonce.ts';
import { api, problemIn } from '../harness/api.ts';

test('a nonce to enrol with is live, and asking for one wakes no object', async () => {
  const { tagKey } = await configurationOf(env);
  const answer = await api('POST', ROUTES.challenges, { body: {} });
  expect(answer.status).toBe(201);
  const { nonce } = EnrollmentChallengeSchema.parse(answer.json);
  expect(await nonceExpiry(tagKey, nonce, Date.now())).toBeGreaterThan(Date.now());
  expect(await listDurableObjectIds(env.POOL)).toEqual([]);
});

test.each([
  ['that nobody made', `enr_default.${'a'.repeat(65)}`],
  ['of the old form, without a tag', `enr_default.${'a'.repeat(43)}`],
  ['of no pool', 'enr_nowhere.short-and-wrong-token'],
])('an enrolment token %s wakes no object (K18)', async (_name, token) => {
  const jwk = await generatePrivateJwk();
  const answer = await api('POST', ROUTES.enroll, {
    body: {
      enrollment_token: token,
      nonce: 'n'.repeat(54),
      public_key: publicPart(jwk),
      signature: 'c2ln',
      agent_version: 'test',
    },
  });
  expect(problemIn(answer)).toMatchObject({ status: 401, code: 'enrollment_refused' });
  expect(await listDurableObjectIds(env.POOL)).toEqual([]);
});
