import { abortAllDurableObjects, evictDurableObject } from 'cloudflare:test';
import { env } from 'cloudflare:workers';
import { afterAll, afterEach, beforeAll, describe, expect, test, vi } from 'vitest';
import * as z from 'zod';
import { ExecutionSchema } from '../../../shared/execution.ts';
import { type RepairRun, RepairRunSchema } from '../../../shared/repair.ts';
import { SessionSchema } from '../../../shared/session.ts';
import type { HostDouble } from '../../fixtures/host-double/host-double.ts';
import { tokenOf } from '../fixture-issuer.ts';
import { type ApiOptions, api, problemIn } from '../harness/api.ts';
import { eventually } from '../harness/eventually.ts';
import { connectFakeHost } from '../harness/fake-host.ts';
import { fenced, ScriptedCode } from '../harness/scripted-code.ts';

let host: HostDouble;
let sessionId: string;
const codes = new ScriptedCode();
const { ran, script } = codes;

const alice = () => tokenOf({ claims: { tenant: 'acme', sub: 'alice' } });

beforeAll(async () => {
  host = await connectFakeHost({ script });
  const created = await api('POST', '/v1/sessions', { token: await alice(), body: {} });
  sessionId = SessionSchema.parse(created.json).session_id;
  const tool = {
    description: 'A model',
    kind: 'http',
    url: 'https://models.example.com/v1/chat/completions',
    credentials: { authorization: 'Bearer very-secret-value' },
  };
  const put = await api('PUT', '/v1/tools/model', { token: await alice(), body: tool });
  expect(put.status, put.text).toBeLessThan(300);
});
afterEach(() => {
  vi.restoreAllMocks();
  ran.length = 0;
});
afterAll(() => {
  expect(host.failures).toEqual([]);
  host.close();
});

const AskedSchema = z.object({
  model: z.string(),
  messages: z.array(z.object({ role: z.string(), content: z.string() })),
});

/** A model that gives these answers in turn; what it was asked is kept. */
function modelAnswers(...answers: (string | ((signal: AbortSignal) => Response | Promise<Response>))[]) {
  const asked: { headers: Headers; body: z.infer<typeof AskedSchema> }[] = [];
  vi.spyOn(globalThis, 'fetch').mockImplementation(async (input, init) => {
    const request = new Request(input, init);
    asked.push({ headers: request.headers, body: AskedSchema.parse(await request.json()) });
    const answer = answers.shift() ?? 'no more';
    if (typeof answer !== 'string') return answer(request.signal);
    return Response.json({ choices: [{ message: { role: 'assistant', content: answer } }] });
  });
  return asked;
}

const path = () => `/v1/sessions/${sessionId}/repair_runs`;

async function start(code: string, more: object = {}, options: ApiOptions = {}): Promise<RepairRun> {
  const body = { code, model: { tool_name: 'model', name: 'mender-1', timeout_ms: 1_000 }, ...more };
  const answer = await api('POST', path(), { token: await alice(), body, ...options });
  expect(answer.status, answer.text).toBe(202);
  return RepairRunSchema.parse(answer.json);
}

async function run(code: string, more: object = {}): Promise<RepairRun> {
  return ended(await start(code, more));
}

function ended({ repair_run_id }: RepairRun): Promise<RepairRun> {
  return eventually(async () => {
    const answer = await api('GET', `${path()}/${repair_run_id}`, { token: await alice() });
    const found = RepairRunSchema.parse(answer.json);
    expect(found.status).not.toBe('running');
    return found;
  });
}

describe('R06: a self-healing run', () => {
  test('that succeeds at once asks nobody', async () => {
    const asked = modelAnswers();
    expect(await run('ok')).toMatchObject({ status: 'succeeded', stopped_because: 'succeeded' });
    expect([ran, asked]).toEqual([['ok'], []]);
  });

  test('is mended at the second try, each attempt an execution with its difference', async () => {
    const asked = modelAnswers(fenced('bad two'), fenced('ok three'));
    const mended = await run('bad one', { task: 'Make it work' });
    expect(mended).toMatchObject({ status: 'succeeded', stopped_because: 'succeeded', detail: null });
    expect(ran).toEqual(['bad one', 'bad two', 'ok three']);
    expect(mended.attempts).toMatchObject([
      { attempt: 1, status: 'failed', error: 'RuntimeError: bad one', diff: null, rolled_back: true },
      { attempt: 2, status: 'failed', error: 'RuntimeError: bad two', rolled_back: true },
      { attempt: 3, status: 'succeeded', error: null, code: 'ok three', rolled_back: false },
    ]);
    expect(mended.attempts[2]?.diff).toContain('-bad two\n+ok three');
    const receipts = await Promise.all(
      mended.attempts.map(async ({ execution_id }) =>
        api('GET', `/v1/sessions/${sessionId}/executions/${execution_id}/receipt`, { token: await alice() }),
      ),
    );
    expect(receipts.map(({ status }) => status)).toEqual([200, 200, 200]);
    expect(asked[0]?.headers.get('authorization')).toBe('Bearer very-secret-value');
    expect(asked[0]?.body.model).toBe('mender-1');
    const question = asked[1]?.body.messages.at(-1)?.content ?? '';
    for (const part of ['Make it work', 'bad one', 'bad two', 'RuntimeError: bad two']) {
      expect(question).toContain(part);
    }
  });

  test.each([
    ['gives the same code again', ['bad'], 'repeated_code', ['bad']],
    ['alternates between two codes', ['worse', 'bad'], 'repeated_code', ['bad', 'worse']],
    ['changes nothing of the error', ['bad#2'], 'repeated_error', ['bad', 'bad#2']],
    ['answers in prose', [], 'no_code', ['bad']],
  ])('stops where the model %s', async (_, codes, stop, runs) => {
    modelAnswers(...codes.map(fenced), 'I do not know.');
    const stopped = await run('bad');
    expect(stopped).toMatchObject({ status: 'failed', stopped_because: stop });
    expect(ran).toEqual(runs);
    expect(stopped.attempts.every(({ rolled_back }) => rolled_back)).toBe(true);
  });

  test('stops at its budget', async () => {
    const asked = modelAnswers(fenced('b'), fenced('c'), fenced('d'));
    expect(await run('a', { max_retries: 2 })).toMatchObject({ stopped_because: 'out_of_retries' });
    expect([ran, asked.length]).toEqual([['a', 'b', 'c'], 2]);
    expect(await run('z', { max_retries: 0 })).toMatchObject({ stopped_because: 'out_of_retries' });
  });

  test.each([
    ['slow', 'timeout'],
    ['oom', 'oom'],
    ['crashed', 'crashed'],
  ])('never mends what is not the code’s fault: %s', async (code, status) => {
    const asked = modelAnswers(fenced('ok'));
    expect(await run(code)).toMatchObject({
      status: 'failed',
      stopped_because: 'not_repairable',
      attempts: [{ attempt: 1, status, rolled_back: false }],
    });
    expect([ran, asked]).toEqual([[code], []]);
  });

  test('never mends what its owner interrupted', async () => {
    const asked = modelAnswers(fenced('ok'));
    const begun = await start('hold');
    await eventually(() => expect(ran).toEqual(['hold']));
    const interrupt = `/v1/sessions/${sessionId}/interrupt`;
    const interrupted = await api('POST', interrupt, { token: await alice(), body: {} });
    expect(interrupted.status, interrupted.text).toBe(200);
    codes.release();
    expect(await ended(begun)).toMatchObject({
      status: 'failed',
      stopped_because: 'not_repairable',
      attempts: [{ attempt: 1, status: 'interrupted', rolled_back: false }],
    });
    expect([ran, asked]).toEqual([['hold'], []]);
  });

  test('never mends what the sandbox was lost under', async () => {
    const asked = modelAnswers(fenced('ok'));
    const begun = await start('lost');
    await eventually(() => expect(ran).toEqual(['lost']));
    host.session(sessionId).send({ type: 'sandbox_lost', reason: 'crashed' });
    codes.release();
    expect(await ended(begun)).toMatchObject({
      status: 'failed',
      stopped_because: 'not_repairable',
      attempts: [{ attempt: 1, status: 'unknown', rolled_back: false }],
    });
    expect([ran, asked]).toEqual([['lost'], []]);
    expect(await run('ok in another sandbox')).toMatchObject({ status: 'succeeded' });
  });

  test('survives a model that is down for a moment, and ends where it stays so', async () => {
    const down = () => new Response('busy', { status: 503 });
    modelAnswers(down, fenced('ok'));
    expect(await run('bad')).toMatchObject({ status: 'succeeded' });
    const asked = modelAnswers(down, down, down, fenced('ok'));
    expect(await run('bad')).toMatchObject({ stopped_because: 'model_failed' });
    expect(asked).toHaveLength(3);
    modelAnswers(() => Response.json({ error: 'what?' }));
    expect(await run('bad')).toMatchObject({ stopped_because: 'model_failed' });
  });

  test('asks a model again that is slower than its time, and ends where it stays so', async () => {
    /** Like a request whose answer does not come: only its signal ends it. */
    const late = (signal: AbortSignal) =>
      new Promise<Response>((_, reject) => {
        signal.addEventListener('abort', () => reject(signal.reason));
      });
    modelAnswers(late, fenced('ok'));
    expect(await run('bad')).toMatchObject({ status: 'succeeded', attempts: [{}, { code: 'ok' }] });
    ran.length = 0;
    const asked = modelAnswers(late, late, late, fenced('ok'));
    const stopped = await run('bad');
    expect(stopped).toMatchObject({
      status: 'failed',
      stopped_because: 'model_failed',
      attempts: [{ status: 'failed', rolled_back: true }],
    });
    expect(stopped.detail).toContain('timeout');
    expect(asked).toHaveLength(3);
    expect(ran).toEqual(['bad']);
  });

  /** What a run depends on, as it goes in the middle of an attempt: an object that a run waits for is reset, but never evicted. */
  const losses = {
    'its record is evicted': ({ repair_run_id }: RepairRun) =>
      evictDurableObject(env.REPAIR.get(env.REPAIR.idFromName(`acme:${repair_run_id}`))),
    'every object is reset': async () => {
      await abortAllDurableObjects();
      await host.until(() => host.controlEpoch === 0);
      await host.connect();
      const double = host.session(sessionId);
      await host.until(() => !double.isLinked);
      await double.connect();
      await host.until(() => double.isLinked);
    },
  };
  test.each(Object.entries(losses))('goes on and ends once where %s in the middle', async (_, lose) => {
    const asked = modelAnswers(fenced('ok after'));
    const begun = await start('held back');
    await eventually(() => expect(ran).toEqual(['held back']));
    await lose(begun);
    codes.release();
    expect(await ended(begun)).toMatchObject({
      status: 'succeeded',
      stopped_because: 'succeeded',
      attempts: [
        { attempt: 1, status: 'failed', rolled_back: true },
        { attempt: 2, status: 'succeeded' },
      ],
    });
    expect(ran).toEqual(['held back', 'ok after']);
    expect(asked).toHaveLength(1);
  });

  test('is cancelled with the attempt that it makes', async () => {
    modelAnswers();
    const { repair_run_id } = await start('hold');
    await eventually(() => expect(ran).toEqual(['hold']));
    const cancelled = await api('POST', `${path()}/${repair_run_id}/cancel`, { token: await alice() });
    expect(RepairRunSchema.parse(cancelled.json)).toMatchObject({
      status: 'cancelled',
      stopped_because: 'cancelled',
    });
    codes.release();
    const again = await api('POST', `${path()}/${repair_run_id}/cancel`, { token: await alice() });
    expect(RepairRunSchema.parse(again.json).status).toBe('cancelled');
  });

  test('is started once, and is its owner’s', async () => {
    modelAnswers();
    const headers = { 'Idempotency-Key': 'repair-1' };
    const [first, second] = [
      await start('ok once', {}, { headers }),
      await start('ok once', {}, { headers }),
    ];
    expect(second.repair_run_id).toBe(first.repair_run_id);
    await eventually(() => expect(ran).toEqual(['ok once']));
    const token = await tokenOf({ claims: { tenant: 'acme', sub: 'bob' } });
    const stranger = await api('GET', `${path()}/${first.repair_run_id}`, { token });
    expect(problemIn(stranger).code).toBe('not_found');
  });

  test.each([
    ['answers as most of its models do', '@cf/test/mender'],
    ['answers with a chat completion', '@cf/test/completion'],
  ])(
    'is mended by a model of Workers AI that %s, each question an execution with a receipt',
    async (_, name) => {
      const mended = await run('bad', { model: { provider: 'workers_ai', name, max_tokens: 100 } });
      expect(mended).toMatchObject({ status: 'succeeded', attempts: [{}, { code: 'ok mended' }] });
      const listed = await api('GET', `/v1/sessions/${sessionId}/executions?limit=3`, {
        token: await alice(),
      });
      const { executions } = z.object({ executions: z.array(ExecutionSchema) }).parse(listed.json);
      const asked = executions.find(({ tool_name }) => tool_name === 'workers_ai');
      expect(asked).toMatchObject({ status: 'succeeded' });
      const receipt = await api(
        'GET',
        `/v1/sessions/${sessionId}/executions/${asked?.execution_id}/receipt`,
        {
          token: await alice(),
        },
      );
      expect(receipt.status).toBe(200);
    },
  );

  test.each([
    ['answers in prose', '@cf/test/prose', 'no_code', 'I do not know.'],
    ['answers with nothing that is known', '@cf/test/odd', 'model_failed', 'no chat completion'],
    ['fails', '@cf/test/down', 'model_failed', 'Workers AI did not answer'],
    ['never answers', '@cf/test/silent', 'model_failed', 'timeout'],
  ])('stops where a model of Workers AI %s', async (_, name, stop, detail) => {
    const model = { provider: 'workers_ai', name, timeout_ms: 1_000 };
    const stopped = await run('bad', { model });
    expect(stopped).toMatchObject({ status: 'failed', stopped_because: stop });
    expect(stopped.detail).toContain(detail);
    expect(stopped.detail).not.toContain('1234');
  });

  test('needs a model that the caller may ask', async () => {
    const body = { code: 'x', model: { tool_name: 'nothing', name: 'm' } };
    const answer = await api('POST', path(), { token: await alice(), body });
    expect(problemIn(answer).violations).toMatchObject([
      { path: 'body.model.tool_name', received: 'nothing' },
    ]);
    const unknown = { code: 'x', model: { provider: 'workers_ai', name: 'm' } };
    const refused = await api('POST', path(), { token: await alice(), body: unknown });
    expect(problemIn(refused).violations).toMatchObject([
      { path: 'body.model.name', expected: expect.stringContaining('@cf/test/mender'), received: 'm' },
    ]);
    const both = { code: 'x', model: { provider: 'workers_ai', tool_name: 'model', name: 'm' } };
    expect(problemIn(await api('POST', path(), { token: await alice(), body: both })).code).toBe(
      'invalid_request',
    );
  });
});
