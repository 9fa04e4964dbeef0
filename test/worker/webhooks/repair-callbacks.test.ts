import { evictDurableObject, runDurableObjectAlarm } from 'cloudflare:test';
import { env } from 'cloudflare:workers';
import { beforeEach, expect, test, vi } from 'vitest';
import { type RepairRun, RepairRunSchema } from '../../../shared/repair.ts';
import { newWebhookSecret } from '../../../worker/webhooks/signature.ts';
import { api, problemIn } from '../harness/api.ts';
import { eventually } from '../harness/eventually.ts';
import { fenced, ScriptedCode } from '../harness/scripted-code.ts';
import {
  at,
  create,
  expectTriedAgain,
  internet,
  open,
  passTime,
  receiver,
  tenant,
  token,
  useHookedTenant,
} from './hooked-tenant.ts';
import { isSignedBy, Receiver } from './receiver.ts';

const MODEL = 'models.example.com';
const secret = newWebhookSecret();
const codes = new ScriptedCode();
const { ran } = codes;

useHookedTenant({ script: codes.script });

beforeEach(async () => {
  ran.length = 0;
  const body = { description: 'A model', kind: 'http', url: `https://${MODEL}/v1/chat/completions` };
  const put = await api('PUT', '/v1/tools/model', { token: await token(), body });
  expect(put.status, put.text).toBeLessThan(300);
});

function modelAnswers(...answers: (string | (() => Promise<Response>))[]): void {
  internet.host(MODEL, () => {
    const answer = answers.shift() ?? 'I do not know.';
    if (typeof answer !== 'string') return answer();
    return Response.json({ choices: [{ message: { role: 'assistant', content: answer } }] });
  });
}

const pathOf = (sessionId: string) => `/v1/sessions/${sessionId}/repair_runs`;

async function post(sessionId: string, code: string, more: object = {}) {
  const body = { code, model: { tool_name: 'model', name: 'mender-1' }, ...more };
  return api('POST', pathOf(sessionId), { token: await token(), body });
}

async function start(sessionId: string, code: string, more: object = {}): Promise<RepairRun> {
  const answer = await post(sessionId, code, { callback: { url: receiver.url, secret }, ...more });
  expect(answer.status, answer.text).toBe(202);
  expect(answer.text).not.toContain(secret);
  return RepairRunSchema.parse(answer.json);
}

async function ended(sessionId: string, repairRunId: string): Promise<RepairRun> {
  return eventually(async () => {
    const answer = await api('GET', `${pathOf(sessionId)}/${repairRunId}`, { token: await token() });
    const run = RepairRunSchema.parse(answer.json);
    expect(run.status).not.toBe('running');
    return run;
  });
}

const objectOf = (repairRunId: string) => env.REPAIR.get(env.REPAIR.idFromName(`${tenant}:${repairRunId}`));

/** The one message, which says of the run what the run says of itself. */
async function toldOf(sessionId: string, repairRunId: string) {
  await eventually(() => expect(receiver.received).toHaveLength(1));
  const message = at(receiver.received, 0);
  expect(await isSignedBy(secret, message)).toBe(true);
  const { status, stopped_because, attempts } = await ended(sessionId, repairRunId);
  expect(message.event).toMatchObject({
    type: 'repair_run.finished',
    data: {
      session_id: sessionId,
      repair_run_id: repairRunId,
      status,
      stopped_because,
      attempts: attempts.length,
    },
  });
  return { ...message, status, stopped_because };
}

test.each([
  ['succeeded', 'ok', [], 'succeeded'],
  ['was mended', 'bad', [fenced('ok')], 'succeeded'],
  ['is out of retries', 'bad', [fenced('worse'), fenced('worst')], 'out_of_retries'],
  ['came upon the same code again', 'bad', [fenced('bad')], 'repeated_code'],
  ['was given no code', 'bad', [], 'no_code'],
  ['met what no code mends', 'slow', [], 'not_repairable'],
  ['has a model that fails', 'bad', [async () => Response.json({ error: 'what?' })], 'model_failed'],
])('a callback tells of a run that %s', async (_, code, answers, stoppedBecause) => {
  modelAnswers(...answers);
  const sessionId = await open();
  const { repair_run_id } = await start(sessionId, code, { max_retries: 1 });
  const told = await toldOf(sessionId, repair_run_id);
  expect(told.stopped_because).toBe(stoppedBecause);
  for (const said of ['RuntimeError', 'I do not know', 'what?']) expect(told.text).not.toContain(said);
});

test('a callback tells of a run that is cancelled, once', async () => {
  const sessionId = await open();
  const { repair_run_id } = await start(sessionId, 'hold');
  await eventually(() => expect(ran).toEqual(['hold']));
  const cancel = async () =>
    api('POST', `${pathOf(sessionId)}/${repair_run_id}/cancel`, { token: await token() });
  expect((await cancel()).status).toBe(200);
  codes.release();
  expect((await cancel()).status).toBe(200);
  expect(await toldOf(sessionId, repair_run_id)).toMatchObject({ stopped_because: 'cancelled' });
});

test('a callback tells of a run whose session was deleted while it made an attempt', async () => {
  const sessionId = await open();
  const { repair_run_id } = await start(sessionId, 'hold');
  await eventually(() => expect(ran).toEqual(['hold']));
  const deleted = await api('DELETE', `/v1/sessions/${sessionId}`, { token: await token() });
  expect(deleted.status, deleted.text).toBe(204);
  codes.release();
  expect(await toldOf(sessionId, repair_run_id)).toMatchObject({ status: 'failed' });
});

test('a callback tells of a run whose session was deleted while the model thought', async () => {
  const sessionId = await open();
  modelAnswers(async () => {
    await api('DELETE', `/v1/sessions/${sessionId}`, { token: await token() });
    return Response.json({ choices: [{ message: { role: 'assistant', content: fenced('ok') } }] });
  });
  const { repair_run_id } = await start(sessionId, 'bad');
  expect(await toldOf(sessionId, repair_run_id)).toMatchObject({ status: 'failed' });
  expect(ran).toEqual(['bad']);
});

test('webhooks that ask for it are told of it too, by the labels of its session', async () => {
  const hooks = new Receiver(internet, 'repairs.example.com');
  const others = new Receiver(internet, 'others.example.com');
  await create({ url: hooks.url, events: ['repair_run.finished'], labels: 'team=red' });
  await create({ url: others.url, events: ['repair_run.finished'], labels: 'team=blue' });
  const sessionId = await open({ labels: { team: 'red' } });
  const { repair_run_id } = await start(sessionId, 'ok');
  const { id } = await toldOf(sessionId, repair_run_id);
  await eventually(() => expect(hooks.received.map((message) => message.id)).toEqual([id]));
  expect(others.received).toEqual([]);
});

test('a callback that fails is tried again, with the same id', async () => {
  receiver.answers = [() => new Response(null, { status: 500 })];
  await start(await open(), 'ok');
  await expectTriedAgain();
});

test('an end that the queue did not take is told after the object comes back, and then no more', async () => {
  const send = vi.spyOn(env.NOTICES, 'send').mockRejectedValue(new Error('down'));
  const sessionId = await open();
  const { repair_run_id } = await start(sessionId, 'ok');
  await ended(sessionId, repair_run_id);
  await eventually(() => expect(send).toHaveBeenCalled());
  send.mockRestore();
  await evictDurableObject(objectOf(repair_run_id));
  passTime(60_000);
  expect(await runDurableObjectAlarm(objectOf(repair_run_id))).toBe(true);
  await toldOf(sessionId, repair_run_id);
  const sent = vi.spyOn(env.NOTICES, 'send');
  // It is acknowledged behind its delivery.
  await eventually(async () => {
    sent.mockClear();
    passTime(60_000);
    await runDurableObjectAlarm(objectOf(repair_run_id));
    expect(sent).not.toHaveBeenCalled();
  });
});

test.each([
  ['to a private address', { url: 'https://10.0.0.1/', secret }, 'body.callback.url'],
  [
    'with a short secret',
    { url: 'https://hooks.example.com/', secret: 'whsec_AAAA' },
    'body.callback.secret',
  ],
])('a callback %s is refused, and nothing runs', async (_, callback, path) => {
  const answer = await post(await open(), 'ok', { callback });
  expect(problemIn(answer).violations?.[0]?.path).toBe(path);
  expect(ran).toEqual([]);
});
