import { createExecutionContext } from 'cloudflare:test';
import { env } from 'cloudflare:workers';
import { expect, test, vi } from 'vitest';
import { newSessionId } from '../../../shared/ids.ts';
import { ProblemSchema } from '../../../shared/problem.ts';
import { createApp } from '../../../worker/app.ts';
import { configurationOf } from '../../../worker/configuration.ts';
import { tokenOf } from '../fixture-issuer.ts';
import { ORIGIN } from '../issuer-bindings.ts';

/** As the runtime marks what an object threw, or the stub of one. */
const thrown = (marks: object) =>
  vi.fn(() => Promise.reject(Object.assign(new Error('from the runtime'), marks)));

async function describeWith(describeSession: () => Promise<unknown>): Promise<Response> {
  const { tagKey } = await configurationOf(env);
  const sessionId = await newSessionId(tagKey, 'acme');
  const stub = { describe: describeSession };
  const bindings = { ...env, SESSION: { getByName: () => stub } };
  const headers = { Authorization: `Bearer ${await tokenOf()}` };
  const asked = new Request(`${ORIGIN}/v1/sessions/${sessionId}`, { headers });
  return createApp().fetch(asked, bindings, createExecutionContext());
}

const codeOf = async (answer: Response) => ProblemSchema.parse(await answer.json()).code;

test('F26: an object with too much to do is a 503 with the time to come back, and is asked once', async () => {
  // Also where the mark says that it may be asked again: more of the same is what it has too much of.
  const ask = thrown({ overloaded: true, retryable: true });
  const answer = await describeWith(ask);
  expect(answer.status).toBe(503);
  expect(answer.headers.get('Retry-After')).toBe('2');
  expect(await codeOf(answer)).toBe('overloaded');
  expect(ask).toHaveBeenCalledTimes(1);
});

test('an object that was reset is asked once more for what changes nothing', async () => {
  const ask = thrown({ durableObjectReset: true });
  const answer = await describeWith(ask);
  expect([answer.status, await codeOf(answer)]).toEqual([503, 'object_reset']);
  expect(ask).toHaveBeenCalledTimes(2);
});

test('an object that answers is asked once', async () => {
  const ask = vi.fn(async () => ({ ok: false, code: 'not_found', detail: 'no such session, or not yours' }));
  expect((await describeWith(ask)).status).toBe(404);
  expect(ask).toHaveBeenCalledTimes(1);
});
