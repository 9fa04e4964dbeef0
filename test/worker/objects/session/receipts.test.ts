import { runInDurableObject } from 'cloudflare:test';
import { env } from 'cloudflare:workers';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import type { Envelope } from '../../../../shared/dsse.ts';
import { generatePrivateJwk, keyIdOf } from '../../../../shared/ed25519.ts';
import { toBase64, utf8 } from '../../../../shared/encoding.ts';
import { newId } from '../../../../shared/ids.ts';
import { verifyChain } from '../../../../shared/receipt-verify.ts';
import type { ReceiptExport } from '../../../../worker/objects/session/port.ts';
import type { ExecutionDouble, FinishOptions } from '../../../fixtures/host-double/execution-double.ts';
import { echo, type HostDouble, webCrypto } from '../../../fixtures/host-double/host-double.ts';
import { connectFakeHost } from '../../harness/fake-host.ts';
import { call, caller, openSession, type TestSession, WHOLE_CHAIN } from '../../harness/sessions.ts';

let host: HostDouble;
let session: TestSession;
let running: ExecutionDouble;

beforeEach(async () => {
  host = await connectFakeHost();
  session = await openSession(host);
});
afterEach(() => host.close());

async function begin(body: Record<string, unknown> = {}): Promise<{ answer: Promise<unknown> }> {
  const started = Promise.withResolvers<void>();
  host.script = async (execution) => {
    running = execution;
    execution.started();
    await execution.write('stdout', 'true');
    started.resolve();
  };
  const answer = session.stub.execute(call('x', { body }));
  await started.promise;
  return { answer };
}

/** What the host signed is not taken: nothing is said of the end, and the next call finds a host and a chain that fit. */
async function isRefused(answer: Promise<unknown>): Promise<void> {
  expect(await answer).toMatchObject({
    ok: true,
    value: { status: 'unknown', reason: 'receipt_refused', stdout: 'true', truncated: true, receipt: null },
  });
  const former = host.session(session.id);
  await host.until(() => former.heard.some(({ type }) => type === 'fenced'));
  host.script = echo;
  for (const text of ['a', 'b']) {
    expect(await session.stub.execute(call(text))).toMatchObject({
      value: { status: 'succeeded', stdout: text, state_lost: text === 'a' },
    });
  }
  expect(host.session(session.id).epoch).toBeGreaterThan(former.epoch);
  expect(host.session(session.id).attach.chain.seq).toBe(0);
  await chainHas(2);
}

async function chainHas(count: number): Promise<void> {
  const exported = await session.stub.receipts(caller, WHOLE_CHAIN);
  if (!exported.ok) throw new Error(exported.detail);
  const { receipts, keys } = exported.value;
  expect(receipts).toHaveLength(count);
  expect(await verifyChain(receipts, keys, session.id)).toMatchObject({ ok: true });
}

async function foreignKey() {
  const jwk = await generatePrivateJwk();
  return { hostId: host.hostId, keyId: await keyIdOf(jwk), crypto: await webCrypto(jwk) };
}

function withPayload(envelope: Envelope, change: (text: string) => string): Envelope {
  return { ...envelope, payload: toBase64(utf8(change(atob(envelope.payload)))) };
}

const WRONG: [string, FinishOptions][] = [
  ['A53 no signature', { envelope: (envelope) => ({ ...envelope, signatures: [] }) }],
  [
    'A54 the key id of another key',
    {
      envelope: (envelope) => ({
        ...envelope,
        signatures: envelope.signatures.map(({ sig }) => ({ sig, keyid: 'a'.repeat(43) })),
      }),
    },
  ],
  [
    'A54 two signatures',
    {
      envelope: (envelope) => ({ ...envelope, signatures: [...envelope.signatures, ...envelope.signatures] }),
    },
  ],
  [
    'A54 another payload type',
    { envelope: (envelope) => ({ ...envelope, payloadType: 'application/json' }) },
  ],
  [
    'A54 an older version',
    { envelope: (envelope) => withPayload(envelope, (text) => text.replace('"v":1', '"v":0')) },
  ],
  [
    'A53 a payload changed after signing',
    { envelope: (envelope) => withPayload(envelope, (text) => text.replace('"cpu_ms":1', '"cpu_ms":2')) },
  ],
  ['A52 another execution', { receipt: (receipt) => ({ ...receipt, execution_id: newId('exe') }) }],
  ['A52 another session', { receipt: (receipt) => ({ ...receipt, session_id: `ses_${'a'.repeat(38)}` }) }],
  ['another tenant', { receipt: (receipt) => ({ ...receipt, tenant_sha256: '0'.repeat(64) }) }],
  ['another host', { receipt: (receipt) => ({ ...receipt, host_id: newId('hst') }) }],
  ['another grant', { receipt: (receipt) => ({ ...receipt, grant_jti: newId('jti') }) }],
  ['another grant hash', { receipt: (receipt) => ({ ...receipt, grant_sha256: '0'.repeat(64) }) }],
  ['other arguments', { receipt: (receipt) => ({ ...receipt, args_sha256: '0'.repeat(64) }) }],
  ['another image', { receipt: (receipt) => ({ ...receipt, image: `sha256:${'2'.repeat(64)}` }) }],
  ['another tool', { receipt: (receipt) => ({ ...receipt, tool: 'python' }) }],
  ['another epoch', { receipt: (receipt) => ({ ...receipt, epoch: 2 }) }],
  [
    'more memory than was granted',
    { receipt: (receipt) => ({ ...receipt, limits: { ...receipt.limits, memory_bytes: 2 ** 31 } }) },
  ],
  ['a gap in the chain', { receipt: (receipt) => ({ ...receipt, seq: 2 }) }],
  ['another place in the chain', { receipt: (receipt) => ({ ...receipt, prev_sha256: '1'.repeat(64) }) }],
  ['another status than the outcome', { receipt: (receipt) => ({ ...receipt, status: 'failed' }) }],
  ['another exit code than the outcome', { receipt: (receipt) => ({ ...receipt, exit_code: 1 }) }],
  [
    'A53 the digest of other bytes',
    { receipt: (receipt) => ({ ...receipt, stdout: { ...receipt.stdout, sha256: '0'.repeat(64) } }) },
  ],
  [
    'A53 more bytes than came',
    { stdout_bytes: 9, receipt: (receipt) => ({ ...receipt, stdout: { ...receipt.stdout, bytes: 9 } }) },
  ],
];

describe('a receipt', () => {
  test.each(WRONG)('with %s is refused, and the next call has another sandbox', async (_name, options) => {
    const { answer } = await begin();
    await running.finish(options);
    await isRefused(answer);
  });

  test('that ends before what came of its stream is refused, however far away that was', async () => {
    const { answer } = await begin();
    running.output('stdout', 1_000_000, utf8('beyond a hole'));
    await running.finish();
    expect(await answer).toMatchObject({ value: { status: 'unknown', reason: 'receipt_refused' } });
  });

  test('that is refused is counted against the host', async () => {
    const { answer } = await begin();
    await running.finish({ envelope: (envelope) => ({ ...envelope, signatures: [] }) });
    await isRefused(answer);
    const refusals = () =>
      runInDurableObject(env.HOST.get(env.HOST.idFromName(host.hostId)), (_object, state) =>
        Number(state.storage.sql.exec('SELECT COUNT(*) AS count FROM refused_receipt').one().count),
      );
    await expect.poll(refusals).toBe(1);
  });

  test('by the key of another host is refused (A53)', async () => {
    const { answer } = await begin();
    host.session(session.id).identity = await foreignKey();
    await running.finish();
    await isRefused(answer);
  });

  test('that is refused lets calls that wait run in the next sandbox, once', async () => {
    const { answer } = await begin();
    host.script = echo;
    const waiting = ['a', 'b'].map((text) => session.stub.execute(call(text)));
    await host.until(() => host.session(session.id).executions.size === 1);
    const former = host.session(session.id);
    await running.finish({ receipt: (receipt) => ({ ...receipt, args_sha256: '0'.repeat(64) }) });
    expect(await answer).toMatchObject({ value: { status: 'unknown', reason: 'receipt_refused' } });
    expect(await Promise.all(waiting)).toMatchObject([
      { value: { status: 'succeeded', stdout: 'a', state_lost: true } },
      { value: { status: 'succeeded', stdout: 'b', state_lost: false } },
    ]);
    expect(former.executions.size).toBe(1);
    await chainHas(2);
  });

  test('that is refused after its call was given up is followed by a sandbox that fits too', async () => {
    const { answer } = await begin({ timeout_ms: 1_000 });
    expect(await answer).toMatchObject({ ok: false, code: 'host_unresponsive' });
    const former = host.session(session.id);
    await running.finish({ receipt: (receipt) => ({ ...receipt, args_sha256: '0'.repeat(64) }) });
    await host.until(() => former.heard.some(({ type }) => type === 'fenced'));
    host.script = echo;
    expect(await session.stub.execute(call('a'))).toMatchObject({ value: { status: 'succeeded' } });
    expect(await session.stub.getExecution(caller, running.id)).toMatchObject({
      value: { status: 'unknown', reason: 'host_unresponsive', receipt: null },
    });
    await chainHas(1);
  });

  test('is exported in parts that join to the whole chain', async () => {
    host.script = echo;
    for (let count = 0; count < 5; count += 1) await session.stub.execute(call('x'));
    const parts: ReceiptExport[] = [];
    for (let after: number | null = 0; after !== null && parts.length < 9; ) {
      const part = await session.stub.receipts(caller, { after, edge_after: 0, limit: 2 });
      if (!part.ok) throw new Error(part.detail);
      parts.push(part.value);
      after = part.value.next_after;
    }
    expect(parts.map(({ receipts, next_after }) => [receipts.length, next_after])).toEqual([
      [2, 2],
      [2, 4],
      [1, null],
    ]);
    const joined = parts.flatMap(({ receipts }) => receipts);
    const whole = await session.stub.receipts(caller, WHOLE_CHAIN);
    expect(whole).toMatchObject({ value: { receipts: joined, next_after: null } });
    expect(await session.stub.receipts(caller, { after: 5, edge_after: 0, limit: 2 })).toMatchObject({
      value: { receipts: [], next_after: null },
    });
  });

  test('for an execution that has ended, or was never sent, is not taken into the chain (A52)', async () => {
    await begin();
    await running.finish();
    const double = host.session(session.id);
    await host.until(() => double.ackedSeq === double.lastSeq);
    const before = await session.stub.getExecution(caller, running.id);
    await running.finish({ status: 'failed', exit_code: 1, offChain: true });
    await host.until(() => double.ackedSeq === double.lastSeq);
    Object.defineProperty(running, 'id', { value: newId('exe') });
    await running.finish();
    await host.until(() => double.heard.some(({ type }) => type === 'fenced'));
    if (!before.ok) throw new Error(before.detail);
    expect(await session.stub.getExecution(caller, before.value.execution_id)).toEqual(before);
    host.script = echo;
    expect(await session.stub.execute(call('a'))).toMatchObject({ value: { status: 'succeeded' } });
    await chainHas(2);
  });
});
