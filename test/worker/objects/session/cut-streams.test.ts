/** A stream that is cut at any byte, again and again, while its object comes and goes: put together it is what was signed. */
import { evictDurableObject } from 'cloudflare:test';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { sha256Hex } from '../../../../shared/digest.ts';
import { concatBytes, fromBase64 } from '../../../../shared/encoding.ts';
import { type StreamEvent, StreamEventSchema } from '../../../../shared/execution.ts';
import { readReceipt } from '../../../../shared/receipt-verify.ts';
import type { ExecutionDouble } from '../../../fixtures/host-double/execution-double.ts';
import type { HostDouble } from '../../../fixtures/host-double/host-double.ts';
import { events } from '../../harness/event-reader.ts';
import { holdSession } from '../../harness/held-session.ts';
import { call, caller, sessionObject, type TestSession } from '../../harness/sessions.ts';

const CUTS = 500;
const EVICTIONS = 25;
/** Within what is kept for replay, so that nothing may be missing. */
const OUTPUT_BYTES = 3_000_000;

let host: HostDouble;
let session: TestSession;
let running: ExecutionDouble[];
beforeEach(async () => {
  ({ host, session, running } = await holdSession());
});
afterEach(() => host.close());

/** Numerical Recipes' generator: the same cuts in each run. */
function generator(seed: number): (below: number) => number {
  let state = seed;
  return (below) => {
    state = (state * 1_664_525 + 1_013_904_223) % 2 ** 32;
    return Math.floor((state / 2 ** 32) * below);
  };
}

/** What a client has that comes back each time: the last id of a whole event, and the bytes up to it. */
class Client {
  lastId: string | undefined;
  readonly #pieces = { stdout: [] as Uint8Array[], stderr: [] as Uint8Array[] };
  readonly #ends = { stdout: 0, stderr: 0 };
  hasEnded = false;

  take(text: string): void {
    // What was cut in the middle of an event does not count: it comes again.
    for (const block of text.slice(0, text.lastIndexOf('\n\n') + 1).split('\n\n')) this.#block(block);
  }

  #block(block: string): void {
    let data: StreamEvent | undefined;
    for (const line of block.split('\n')) {
      if (line.startsWith('id: ')) this.lastId = line.slice(4);
      if (line.startsWith('data: ')) data = StreamEventSchema.parse(JSON.parse(line.slice(6)));
    }
    if (data?.event === 'end') this.hasEnded = true;
    if (data?.event === 'gap') throw new Error(`a gap from ${data.from} to ${data.to}`);
    if (data?.event !== 'stdout' && data?.event !== 'stderr') return;
    if (data.offset !== this.#ends[data.event]) {
      throw new Error(`${data.event} at ${data.offset} after ${this.#ends[data.event]}`);
    }
    const bytes = fromBase64(data.text);
    if (bytes === undefined) throw new Error('not base64');
    this.#pieces[data.event].push(bytes);
    this.#ends[data.event] += bytes.length;
  }

  digest(stream: 'stdout' | 'stderr'): Promise<string> {
    return sha256Hex(concatBytes(this.#pieces[stream]));
  }
}

/** Reads so many bytes, at most to where nothing more is to come now, and cuts. */
async function readAndCut(executionId: string, client: Client, maxBytes: number): Promise<void> {
  const response = await events(session, executionId, {
    encoding: 'base64',
    ...(client.lastId === undefined ? {} : { lastEventId: client.lastId }),
  });
  if (response.status !== 200 || response.body === null) throw new Error(`no stream: ${response.status}`);
  const reader = response.body.getReader();
  const chunks: Uint8Array[] = [];
  let bytes = 0;
  while (bytes < maxBytes) {
    const silence = new Promise<undefined>((resolve) => setTimeout(() => resolve(undefined), 20));
    const read = await Promise.race([reader.read(), silence]);
    if (read === undefined || read.done) break;
    chunks.push(read.value);
    bytes += read.value.length;
  }
  await reader.cancel().catch(() => undefined);
  client.take(new TextDecoder().decode(concatBytes(chunks).subarray(0, maxBytes)));
}

test(`cut at ${CUTS} bytes, with its object evicted ${EVICTIONS} times, has the digests of the receipt`, async () => {
  const draw = generator(20_261_130);
  const accepted = await session.stub.execute(call('x', { body: { detach: true } }));
  if (!accepted.ok) throw new Error(accepted.detail);
  const { execution_id: executionId } = accepted.value;
  await host.until(() => running.length > 0);
  const [execution] = running;
  if (execution === undefined) throw new Error('nothing runs');
  execution.started();
  const stub = sessionObject(session.id);
  const finished: Client[] = [];
  let client = new Client();
  let written = 0;
  let isFinished = false;
  for (let cut = 0; cut < CUTS || finished.length === 0; cut += 1) {
    if (written < OUTPUT_BYTES) {
      const bytes = crypto.getRandomValues(new Uint8Array(1 + draw(24_000)));
      written += bytes.length;
      await execution.write(draw(4) === 0 ? 'stderr' : 'stdout', bytes);
    } else if (!isFinished) {
      isFinished = true;
      await execution.finish();
    }
    if (cut % (CUTS / EVICTIONS) === 7) await evictDurableObject(stub);
    await readAndCut(executionId, client, 1 + draw(draw(3) === 0 ? 600_000 : 40_000));
    if (!client.hasEnded) continue;
    finished.push(client);
    client = new Client();
  }
  const envelope = await session.stub.receipt(caller, executionId);
  if (!envelope.ok) throw new Error(envelope.detail);
  const read = readReceipt(envelope.value);
  if (!read.ok) throw new Error(read.detail);
  const { receipt } = read.value;
  expect(receipt.stdout.bytes + receipt.stderr.bytes).toBe(written);
  for (const one of finished) {
    expect(await one.digest('stdout')).toBe(receipt.stdout.sha256);
    expect(await one.digest('stderr')).toBe(receipt.stderr.sha256);
  }
});
