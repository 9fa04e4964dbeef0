/** Signed receipts of two hosts and an edge whose keys are made for the test run. */
import { sha256Hex } from '../../shared/digest.ts';
import { counterSign, type Envelope, envelopePayload, type Signer, signEnvelope } from '../../shared/dsse.ts';
import { generatePrivateJwk, importPrivateKey, keyIdOf, publicPart } from '../../shared/ed25519.ts';
import { utf8 } from '../../shared/encoding.ts';
import { newId, randomHandle } from '../../shared/ids.ts';
import type { DatedKey } from '../../shared/key-set.ts';
import { DEFAULT_RESOURCE_LIMITS } from '../../shared/limits.ts';
import { FIRST_PREVIOUS_SHA256, RECEIPT_PAYLOAD_TYPE, type Receipt } from '../../shared/receipt.ts';
import type { TrustedKeys } from '../../shared/verification.ts';

export interface TestSigner extends Signer {
  dated: DatedKey;
}

export async function makeSigner(): Promise<TestSigner> {
  const jwk = await generatePrivateJwk();
  const keyId = await keyIdOf(jwk);
  const dated = { kid: keyId, jwk: publicPart(jwk), not_before: null, not_after: null, revoked_at: null };
  return { keyId, privateKey: await importPrivateKey(jwk), dated };
}

export interface TestWorld {
  edge: TestSigner;
  host: TestSigner;
  hostId: string;
  otherHost: TestSigner;
  otherHostId: string;
  keys: TrustedKeys;
  sessionId: string;
}

export async function makeWorld(): Promise<TestWorld> {
  const [edge, host, otherHost] = await Promise.all([makeSigner(), makeSigner(), makeSigner()]);
  const hostId = newId('hst');
  const otherHostId = newId('hst');
  return {
    edge,
    host,
    hostId,
    otherHost,
    otherHostId,
    sessionId: newTestSessionId(),
    keys: {
      edge: [edge.dated],
      hosts: [
        { ...host.dated, host_id: hostId },
        { ...otherHost.dated, host_id: otherHostId },
      ],
    },
  };
}

export function newTestSessionId(): string {
  return `ses_${randomHandle()}${'A'.repeat(16)}`;
}

export const FINISHED_AT = '2026-03-01T10:00:01.000Z';

export async function makeReceipt(world: TestWorld, changes: Partial<Receipt> = {}): Promise<Receipt> {
  return {
    v: 1,
    receipt_id: newId('rct'),
    execution_id: newId('exe'),
    grant_jti: newId('jti'),
    grant_sha256: await sha256Hex('a grant'),
    tenant_sha256: await sha256Hex('acme'),
    session_id: world.sessionId,
    epoch: 1,
    seq: 1,
    prev_sha256: FIRST_PREVIOUS_SHA256,
    tool: 'python',
    tool_version: '1',
    args_sha256: await sha256Hex('{"code":"1"}'),
    image: `sha256:${'1'.repeat(64)}`,
    runsc_version: '20240729.0',
    runsc_platform: 'systrap',
    limits: { ...DEFAULT_RESOURCE_LIMITS, timeout_ms: 30_000 },
    usage: { cpu_ms: 1.5, wall_ms: 4, peak_memory_bytes: 1024, output_bytes: 3 },
    status: 'succeeded',
    exit_code: 0,
    signal: null,
    reason: null,
    state_lost: false,
    stdout: { sha256: await sha256Hex('hi\n'), bytes: 3, truncated: false },
    stderr: { sha256: await sha256Hex(''), bytes: 0, truncated: false },
    artifacts: [],
    granted_at: '2026-03-01T10:00:00.000Z',
    started_at: '2026-03-01T10:00:00.500Z',
    finished_at: FINISHED_AT,
    host_id: world.hostId,
    key_id: world.host.keyId,
    ...changes,
  };
}

export async function seal(receipt: Receipt | string, host: Signer, edge: Signer | null): Promise<Envelope> {
  const payload = utf8(typeof receipt === 'string' ? receipt : JSON.stringify(receipt));
  const signed = await signEnvelope(RECEIPT_PAYLOAD_TYPE, payload, host);
  return edge === null ? signed : counterSign(signed, payload, edge);
}

export async function makeSealed(world: TestWorld, changes: Partial<Receipt> = {}): Promise<Envelope> {
  return seal(await makeReceipt(world, changes), world.host, world.edge);
}

export async function makeChain(world: TestWorld, length: number): Promise<Envelope[]> {
  const chain: Envelope[] = [];
  let previous = FIRST_PREVIOUS_SHA256;
  for (let seq = 1; seq <= length; seq += 1) {
    const envelope = await makeSealed(world, { seq, prev_sha256: previous });
    previous = await sha256Hex(payloadOf(envelope));
    chain.push(envelope);
  }
  return chain;
}

export function payloadOf(envelope: Envelope): Uint8Array<ArrayBuffer> {
  const payload = envelopePayload(envelope);
  if (payload === undefined) throw new Error('the fixture made an envelope without canonical base64');
  return payload;
}
