import { listDurableObjectIds } from 'cloudflare:test';
import { env } from 'cloudflare:workers';
import { expect, test } from 'vitest';
import { EnrollmentChallengeSchema, ROUTES } from '../../../shared/host-api.ts';
import { configurationOf } from '../../../worker/configuration.ts';
import { nonceExpiry } from '../../../worker/objects/pool/nonce.ts';
import { api } from '../harness/api.ts';

test('a nonce to enrol with is live, and asking for one wakes no object', async () => {
  const { tagKey } = await configurationOf(env);
  const answer = await api('POST', ROUTES.challenges, { body: {} });
  expect(answer.status).toBe(201);
  const { nonce } = EnrollmentChallengeSchema.parse(answer.json);
  expect(await nonceExpiry(tagKey, nonce, Date.now())).toBeGreaterThan(Date.now());
  expect(await listDurableObjectIds(env.POOL)).toEqual([]);
});
