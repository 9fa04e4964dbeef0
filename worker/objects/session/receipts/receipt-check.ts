/** Whether a receipt is the one that this execution must have, before the edge signs it too. */
import { sha256Hex } from '../../../../shared/digest.ts';
import {
  type Envelope,
  preAuthenticationEncoding,
  type VerifyingKey,
  verifySignature,
} from '../../../../shared/dsse.ts';
import { importPublicKey, keyIdOf } from '../../../../shared/ed25519.ts';
import type { ExecutionOutcome } from '../../../../shared/execution.ts';
import { isTerminal } from '../../../../shared/lifecycle.ts';
import { FIRST_PREVIOUS_SHA256, type Receipt } from '../../../../shared/receipt.ts';
import { readEnvelope } from '../../../../shared/receipt-verify.ts';
import type { ExecutionRecord, SessionFacts, SessionRecord } from '../rows/records.ts';

export interface Claim {
  envelope: Envelope;
  outcome: ExecutionOutcome;
  record: ExecutionRecord;
  session: Pick<SessionRecord, 'facts' | 'hostKeyX' | 'epoch' | 'chainSeq' | 'chainSha256'>;
  /** The bytes of a stream as far as the edge has them from 0 on; undefined where they are not to be compared. */
  stream: ((name: 'stdout' | 'stderr') => Uint8Array) | undefined;
  /** Where a stream ends by what came of it, holes or not. */
  streamEnd: ((name: 'stdout' | 'stderr') => number) | undefined;
}

export type CheckedReceipt =
  | { ok: true; receipt: Receipt; payload: Uint8Array<ArrayBuffer>; sha256: string }
  | { ok: false; detail: string };

export async function checkReceipt(claim: Claim): Promise<CheckedReceipt> {
  const read = readEnvelope(claim.envelope);
  if (!read.ok) return refuse(read.detail);
  const { receipt, payload, envelope } = read.value;
  const wrong =
    (await signatureFault(envelope, payload, claim.session.hostKeyX)) ??
    (await identityFault(receipt, claim)) ??
    chainFault(receipt, claim.session) ??
    outcomeFault(receipt, claim.outcome) ??
    (await streamFault(receipt, claim));
  if (wrong !== undefined) return refuse(wrong);
  return { ok: true, receipt, payload, sha256: await sha256Hex(payload) };
}

function refuse(detail: string): CheckedReceipt {
  return { ok: false, detail };
}

async function signatureFault(
  envelope: Envelope,
  payload: Uint8Array,
  hostKeyX: string | null,
): Promise<string | undefined> {
  const [signature] = envelope.signatures;
  if (signature === undefined || envelope.signatures.length !== 1) {
    return `one signature was expected, not ${envelope.signatures.length}`;
  }
  const key = await hostKey(hostKeyX);
  if (key === undefined || signature.keyid !== key.keyId) return 'signed with another key';
  const message = preAuthenticationEncoding(envelope.payloadType, payload);
  return (await verifySignature(signature.sig, message, key.verifying))
    ? undefined
    : 'the signature does not verify';
}

interface HostKey {
  keyId: string;
  verifying: VerifyingKey;
}

/** Importing a key costs as much as verifying with it; the few hosts of an isolate's sessions are remembered. */
const hostKeys = new Map<string, HostKey>();
const MAX_HOST_KEYS = 256;

async function hostKey(x: string | null): Promise<HostKey | undefined> {
  if (x === null) return undefined;
  const known = hostKeys.get(x);
  if (known !== undefined) return known;
  const jwk = { kty: 'OKP', crv: 'Ed25519', x } as const;
  const verifying = await importPublicKey(jwk);
  if (verifying === undefined) return undefined;
  const key = { keyId: await keyIdOf(jwk), verifying };
  if (hostKeys.size >= MAX_HOST_KEYS) hostKeys.clear();
  hostKeys.set(x, key);
  return key;
}

const tenantHashes = new WeakMap<SessionFacts, string>();

async function tenantSha256(facts: SessionFacts): Promise<string> {
  const known = tenantHashes.get(facts);
  if (known !== undefined) return known;
  const sha256 = await sha256Hex(facts.tenant);
  tenantHashes.set(facts, sha256);
  return sha256;
}

async function identityFault(receipt: Receipt, { record, session }: Claim): Promise<string | undefined> {
  const { facts, hostKeyX } = session;
  const grant = record.grants.find(({ jti }) => jti === receipt.grant_jti);
  const expected: Partial<Receipt> = {
    host_id: facts.hostId,
    key_id: (await hostKey(hostKeyX))?.keyId ?? '',
    session_id: facts.sessionId,
    execution_id: record.executionId,
    tenant_sha256: await tenantSha256(facts),
    grant_sha256: grant?.sha256 ?? '',
    args_sha256: record.argsSha256,
    tool: record.tool,
    tool_version: record.toolVersion,
    image: facts.imageDigest,
  };
  for (const [name, value] of Object.entries(expected)) {
    if (Reflect.get(receipt, name) !== value) return `${name} is that of something else`;
  }
  // One that moved with its session may be signed for either.
  if (receipt.epoch !== record.epoch && receipt.epoch !== session.epoch) {
    return 'epoch is that of something else';
  }
  const limits = { ...facts.limits, timeout_ms: record.timeoutMs };
  for (const [name, value] of Object.entries(limits)) {
    if (Reflect.get(receipt.limits, name) !== value) return `limits.${name} is not the granted one`;
  }
  return undefined;
}

function chainFault(receipt: Receipt, session: Claim['session']): string | undefined {
  if (receipt.seq !== session.chainSeq + 1) {
    return `receipt ${session.chainSeq + 1} of the chain was expected, not ${receipt.seq}`;
  }
  const previous = session.chainSeq === 0 ? FIRST_PREVIOUS_SHA256 : session.chainSha256;
  return receipt.prev_sha256 === previous ? undefined : 'it does not follow the receipt before';
}

function outcomeFault(receipt: Receipt, outcome: ExecutionOutcome): string | undefined {
  if (!isTerminal(outcome.status)) return `${outcome.status} is not an end`;
  const pairs: [string, unknown, unknown][] = [
    ['status', receipt.status, outcome.status],
    ['exit_code', receipt.exit_code, outcome.exit_code],
    ['signal', receipt.signal, outcome.signal],
    ['reason', receipt.reason, outcome.reason],
    ['state_lost', receipt.state_lost, outcome.state_lost],
    ['started_at', receipt.started_at, outcome.started_at],
    ['finished_at', receipt.finished_at, outcome.finished_at],
    ['stdout.bytes', receipt.stdout.bytes, outcome.stdout_bytes],
    ['stderr.bytes', receipt.stderr.bytes, outcome.stderr_bytes],
  ];
  const differing = pairs.find(([, signed, stated]) => signed !== stated);
  return differing === undefined ? undefined : `${differing[0]} differs between receipt and outcome`;
}

/** Most calls leave one stream empty. */
const SHA256_OF_NOTHING = 'e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855';

/** What is shown as whole must hash to what the host signed. */
async function streamFault(receipt: Receipt, { stream, streamEnd }: Claim): Promise<string | undefined> {
  if (stream === undefined) return undefined;
  for (const name of ['stdout', 'stderr'] as const) {
    const signed = receipt[name];
    // Of an end that the host did not see it has counted nothing.
    const isCounted = receipt.status !== 'unknown';
    if (isCounted && (streamEnd?.(name) ?? 0) > signed.bytes) return `${name} ends before what came of it`;
    if (signed.truncated) continue;
    const bytes = stream(name);
    const sha256 = bytes.length === 0 ? SHA256_OF_NOTHING : await sha256Hex(bytes);
    if (bytes.length !== signed.bytes || sha256 !== signed.sha256) {
      return `the bytes of ${name} are not those of the receipt`;
    }
  }
  return undefined;
}
