/** A stream on which nothing happens says every few seconds that it lives: proxies end what is silent. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { SSE_HEARTBEAT_MS } from '../../../shared/limits.ts';
import { SessionSchema } from '../../../shared/session.ts';
import type { ExecutionDouble } from '../../fixtures/host-double/execution-double.ts';
import type { HostDouble } from '../../fixtures/host-double/host-double.ts';
import { tokenOf } from '../fixture-issuer.ts';
import { api, request } from '../harness/api.ts';
import { eventually } from '../harness/eventually.ts';
import { connectFakeHost } from '../harness/fake-host.ts';

/** Less than where one sign of life is left out. */
const MAX_SILENCE_MS = 2 * SSE_HEARTBEAT_MS - 1_000;
const OTHERS_EVERY_MS = 2_000;

let host: HostDouble;
let session: string;
let token: string;
let execution: ExecutionDouble;

beforeAll(async () => {
  const running: ExecutionDouble[] = [];
  host = await connectFakeHost({ script: (started) => void running.push(started) });
  token = await tokenOf();
  const created = await api('POST', '/v1/sessions', { token, body: {} });
  session = `/v1/sessions/${SessionSchema.parse(created.json).session_id}`;
  await api('POST', `${session}/execute`, {
    token,
    body: { tool_name: 'shell', arguments: { command: 'x' }, detach: true },
  });
  await host.until(() => running.length === 1);
  const [first] = running;
  if (first === undefined) throw new Error('nothing runs');
  execution = first;
  execution.started();
});
afterAll(() => {
  expect(host.failures).toEqual([]);
  host.close();
});

/** The longest silence until the second sign of life that is no event. */
async function silenceOf(response: Response): Promise<number> {
  expect(response.status).toBe(200);
  const reader = response.body?.pipeThrough(new TextDecoderStream()).getReader();
  let text = '';
  let longestMs = 0;
  for (let beganMs = performance.now(); text.split(/^:/m).length < 3; beganMs = performance.now()) {
    const read = await reader?.read();
    longestMs = Math.max(longestMs, performance.now() - beganMs);
    if (read === undefined || read.done) throw new Error(`the stream ended: ${text}`);
    text += read.value;
  }
  await reader?.cancel();
  return longestMs;
}

describe.concurrent('a quiet stream has a sign of life at least every 15 s', () => {
  test('of whichever kind', () => {
    expect(SSE_HEARTBEAT_MS).toBeLessThan(15_000);
  });

  test('of an execution', async () => {
    const stream = await request('GET', `${session}/executions/${execution.id}/events`, { token });
    expect(await silenceOf(stream)).toBeLessThan(MAX_SILENCE_MS);
  });

  test('of an execution whose other readers come and go', async () => {
    const open = () => request('GET', `${session}/executions/${execution.id}/events`, { token });
    const quiet = silenceOf(await open());
    // For longer than a silence may be, and more often than there are signs of life.
    for (let n = 0; n * OTHERS_EVERY_MS < MAX_SILENCE_MS; n += 1) {
      await (await open()).body?.cancel();
      await scheduler.wait(OTHERS_EVERY_MS);
    }
    expect(await quiet).toBeLessThan(MAX_SILENCE_MS);
  });

  test('of a call that is streamed to who made it', async () => {
    const stream = await request('POST', `${session}/execute`, {
      token,
      body: { tool_name: 'python', arguments: { code: 'x' } },
      headers: { Accept: 'text/event-stream' },
    });
    expect(await silenceOf(stream)).toBeLessThan(MAX_SILENCE_MS);
  });

  test('of a session', async () => {
    expect(await silenceOf(await request('GET', `${session}/events`, { token }))).toBeLessThan(
      MAX_SILENCE_MS,
    );
  });

  test('on a socket', async () => {
    const { webSocket: socket } = await request('GET', `${session}/executions/${execution.id}/events`, {
      headers: { Upgrade: 'websocket', Authorization: `Bearer ${token}` },
    });
    if (socket === null) throw new Error('no socket');
    const heardAtMs = [performance.now()];
    socket.addEventListener('message', () => void heardAtMs.push(performance.now()));
    socket.accept();
    // Its beginning, the start, and two that tell of nothing.
    await eventually(() => expect(heardAtMs.length).toBeGreaterThanOrEqual(4));
    socket.close();
    const silences = heardAtMs.slice(1).map((atMs, index) => atMs - (heardAtMs[index] ?? 0));
    expect(Math.max(...silences)).toBeLessThan(MAX_SILENCE_MS);
  });
});
