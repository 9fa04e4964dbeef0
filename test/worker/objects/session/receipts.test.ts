import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import type { Envelope } from '../../../../shared/dsse.ts';
import { generatePrivateJwk, importPrivateKey, keyIdOf } from '../../../../shared/ed25519.ts';
import { toBase64, utf8 } from '../../../../shared/encoding.ts';
import { newId } from '../../../../shared/ids.ts';
import { verifyChain } from '../../../../shared/receipt-verify.ts';
import type { ExecutionDouble, FinishOptions } from '../../../fixtures/host-double/execution-double.ts';
import type { HostDouble } from '../../../fixtures/host-double/host-double.ts';
import { signReceipt } from '../../../fixtures/host-double/receipts.ts';
import { connectFakeHost } from '../../harness/fake-host.ts';
import { call, caller, openSession, type TestSession } from '../../harness/sessions.ts';

let host: HostDouble;
let session: TestSession;
let running: ExecutionDouble;

beforeEach(async () => {
  host = await connectFakeHost();
  session = await openSession(host);
});
afterEach(() => host.close());

async function begin(): Promise<{ answer: Promise<unknown> }> {
  const started = Promise.withResolvers<void>();
  host.script = async (execution) => {
    running = execution;
    execution.started();
    await execution.write('stdout', 'true');
    started.resolve();
  };
  const answer = session.stub.execute(call('x'));
  await started.promise;
  return { answer };
}

async function isOpenAfter(send: () => Promise<void> | void): Promise<void> {
  await send();
  const double = host.session(session.id);
  // Acknowledged means judged: a frame that was dropped need not come again.
  await host.until(() => double.ackedSeq === double.lastSeq);
  expect(await session.stub.getExecution(caller, running.id)).toMatchObject({ value: { status: 'running' } });
}

async function endsWell(): Promise<void> {
  await running.finish();
  await host.until(() => host.session(session.id).ackedSeq === host.session(session.id).lastSeq);
  expect(await session.stub.getExecution(caller, running.id)).toMatchObject({
    value: { status: 'succeeded', stdout: 'true' },
  });
  const exported = await session.stub.receipts(caller);
  if (!exported.ok) throw new Error(exported.detail);
  const { receipts, keys } = exported.value;
  expect(receipts).toHaveLength(1);
  expect(await verifyChain(receipts, keys, session.id)).toMatchObject({ ok: true });
}

async function foreignKey() {
  const jwk = await generatePrivateJwk();
  return { hostId: host.hostId, keyId: await keyIdOf(jwk), privateKey: await importPrivateKey(jwk) };
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
    { envelope: (envelope) => ({ ...envelope, signatures: [...envelope.signatures, ...envelope.signatures] }) },
  ],
  ['A54 another payload type', { envelope: (envelope) => ({ ...envelope, payloadType: 'application/json' }) }],
  ['A54 an older version', { envelope: (envelope) => withPayload(envelope, (text) => text.replace('"v":1', '"v":0')) }],
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
  ['more memory than was granted', { receipt: (receipt) => ({ ...receipt, limits: { ...receipt.limits, memory_bytes: 2 ** 31 } }) }],
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
  test.each(WRONG)('with %s is dropped, and the execution stays open', async (_name, options) => {
    const { answer } = await begin();
    await isOpenAfter(() => running.finish({ ...options, offChain: true }));
    await endsWell();
    expect(await answer).toMatchObject({ ok: true, value: { status: 'succeeded' } });
  });

  test('by the key of another host is dropped (A53)', async () => {
    await begin();
    const identity = await foreignKey();
    const signed = Promise.withResolvers<Envelope>();
    await isOpenAfter(async () => {
      await running.finish({
        offChain: true,
        receipt: (receipt) => {
          void signReceipt(receipt, identity).then(({ envelope }) => signed.resolve(envelope));
          return { ...receipt, seq: 99 };
        },
      });
      const envelope = await signed.promise;
      await running.finish({ offChain: true, envelope: () => envelope });
    });
    await endsWell();
  });

  test('for an execution that was never sent, or has ended, changes nothing (A52)', async () => {
    await begin();
    await running.finish();
    const double = host.session(session.id);
    await host.until(() => double.ackedSeq === double.lastSeq);
    const before = await session.stub.getExecution(caller, running.id);
    await running.finish({ status: 'failed', exit_code: 1 });
    Object.defineProperty(running, 'id', { value: newId('exe') });
    await running.finish();
    await host.until(() => double.ackedSeq === double.lastSeq);
    const exported = await session.stub.receipts(caller);
    expect(exported.ok && exported.value.receipts).toHaveLength(1);
    if (!before.ok) throw new Error(before.detail);
    expect(await session.stub.getExecution(caller, before.value.execution_id)).toEqual(before);
  });
});
