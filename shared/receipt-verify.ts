/** Verification of receipts and of a session's chain, offline, with public keys only. */
import * as z from 'zod';
import { sha256Hex } from './digest.ts';
import {
  type Envelope,
  EnvelopeSchema,
  envelopePayload,
  preAuthenticationEncoding,
  verifySignature,
} from './dsse.ts';
import { importPublicKey } from './ed25519.ts';
import { HostIdSchema, SessionIdSchema } from './ids.ts';
import { DatedKeySchema, isLiveAt } from './key-set.ts';
import { FIRST_PREVIOUS_SHA256, RECEIPT_PAYLOAD_TYPE, type Receipt, ReceiptSchema } from './receipt.ts';

/** Public keys that a verifier trusts: those of the edge that counter-signs, and those of hosts. */
export const TrustedKeysSchema = z.object({
  edge: z.array(DatedKeySchema),
  hosts: z.array(DatedKeySchema.extend({ host_id: HostIdSchema })),
});
export type TrustedKeys = z.infer<typeof TrustedKeysSchema>;

/** What `GET /v1/sessions/{id}/receipts` answers and the verifier reads: the chain in order, or a part of it. */
export const ReceiptExportSchema = z.object({
  session_id: SessionIdSchema,
  receipts: z.array(EnvelopeSchema),
  keys: TrustedKeysSchema,
  /** Position of the last receipt here, where more follow: the next part is had by `after`. */
  next_after: z.int().min(1).nullable().default(null),
});

export type VerificationCode =
  | 'envelope_malformed'
  | 'payload_type_unknown'
  | 'payload_encoding'
  | 'payload_malformed'
  | 'payload_duplicate_key'
  | 'signature_missing'
  | 'host_signature_missing'
  | 'edge_signature_missing'
  | 'key_unknown'
  | 'key_of_other_host'
  | 'key_not_valid_then'
  | 'key_revoked'
  | 'signature_invalid'
  | 'chain_gap'
  | 'chain_fork'
  | 'chain_broken'
  | 'chain_other_session'
  | 'execution_mismatch'
  | 'session_mismatch'
  | 'tenant_mismatch'
  | 'grant_mismatch'
  | 'args_mismatch'
  | 'output_mismatch'
  | 'truncation_hidden';

export interface VerificationFailure {
  ok: false;
  code: VerificationCode;
  detail: string;
  /** Position in the chain, where a chain was verified. */
  seq?: number;
}
export type Verified<T> = { ok: true; value: T } | VerificationFailure;

/** What a holder of the result may compare the receipt with; each field given must match. */
export interface Expectation {
  executionId?: string;
  sessionId?: string;
  tenant?: string;
  /** The grant as the host saw it. */
  grant?: string;
  argsSha256?: string;
  stdout?: { bytes: Uint8Array; presentedAsWhole: boolean };
  stderr?: { bytes: Uint8Array; presentedAsWhole: boolean };
}

function refuse(code: VerificationCode, detail: string): VerificationFailure {
  return { ok: false, code, detail };
}

/** Checks one envelope: form, both signatures, validity of their keys, and the expectations. */
export async function verifyReceipt(
  input: unknown,
  keys: TrustedKeys,
  expected: Expectation = {},
): Promise<Verified<{ receipt: Receipt; payload: Uint8Array }>> {
  const read = readReceipt(input);
  if (!read.ok) return read;
  const { envelope, receipt, payload } = read.value;
  const signatures = await verifySignatures(envelope, payload, receipt, keys);
  if (!signatures.ok) return signatures;
  const mismatch = await compare(receipt, expected);
  return mismatch ?? { ok: true, value: { receipt, payload } };
}

const payloadDecoder = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });

/** Parses an envelope and its payload without judging signatures. */
export function readReceipt(
  input: unknown,
): Verified<{ envelope: Envelope; receipt: Receipt; payload: Uint8Array<ArrayBuffer> }> {
  const envelope = EnvelopeSchema.safeParse(input);
  if (!envelope.success) {
    return refuse('envelope_malformed', `envelope: ${envelope.error.issues[0]?.message ?? 'not an object'}`);
  }
  return readEnvelope(envelope.data);
}

/** The same of an envelope that was parsed already. */
export function readEnvelope(
  envelope: Envelope,
): Verified<{ envelope: Envelope; receipt: Receipt; payload: Uint8Array<ArrayBuffer> }> {
  if (envelope.payloadType !== RECEIPT_PAYLOAD_TYPE) {
    return refuse('payload_type_unknown', `payloadType must be ${RECEIPT_PAYLOAD_TYPE}`);
  }
  const payload = envelopePayload(envelope);
  if (payload === undefined) return refuse('payload_encoding', 'the payload is not canonical base64');
  let parsed: unknown;
  let text: string;
  try {
    text = payloadDecoder.decode(payload);
    parsed = JSON.parse(text);
  } catch {
    return refuse('payload_malformed', 'the payload is not JSON');
  }
  // JSON.parse keeps the last of two equal keys; a reader that keeps the first would see another receipt.
  if (JSON.stringify(parsed) !== text) {
    return refuse('payload_duplicate_key', 'the payload is not the one serialisation of its content');
  }
  const receipt = ReceiptSchema.safeParse(parsed);
  if (!receipt.success) {
    const issue = receipt.error.issues[0];
    return refuse(
      'payload_malformed',
      `receipt.${issue?.path.join('.') ?? ''}: ${issue?.message ?? 'wrong'}`,
    );
  }
  return { ok: true, value: { envelope, receipt: receipt.data, payload } };
}

async function verifySignatures(
  envelope: Envelope,
  payload: Uint8Array,
  receipt: Receipt,
  keys: TrustedKeys,
): Promise<Verified<true>> {
  if (envelope.signatures.length === 0) return refuse('signature_missing', 'the envelope has no signature');
  const message = preAuthenticationEncoding(envelope.payloadType, payload);
  const finishedAtS = Math.floor(Date.parse(receipt.finished_at) / 1000);
  let byHost = false;
  let byEdge = false;
  for (const signature of envelope.signatures) {
    const host = keys.hosts.find((key) => key.kid === signature.keyid);
    const edge = keys.edge.find((key) => key.kid === signature.keyid);
    const dated = host ?? edge;
    if (dated === undefined) return refuse('key_unknown', `no trusted key has the id ${signature.keyid}`);
    if (host !== undefined && (host.host_id !== receipt.host_id || host.kid !== receipt.key_id)) {
      return refuse('key_of_other_host', 'the signing key is not that of the host in the receipt');
    }
    if (dated.revoked_at !== null && finishedAtS >= dated.revoked_at) {
      return refuse('key_revoked', `the key ${dated.kid} was revoked before the receipt was signed`);
    }
    if (!isLiveAt(dated, finishedAtS))
      return refuse('key_not_valid_then', `the key ${dated.kid} was not valid then`);
    const key = await importPublicKey(dated.jwk);
    if (key === undefined || !(await verifySignature(signature.sig, message, key))) {
      return refuse('signature_invalid', `the signature by ${dated.kid} does not verify`);
    }
    if (host !== undefined) byHost = true;
    if (edge !== undefined) byEdge = true;
  }
  if (!byHost) return refuse('host_signature_missing', 'no signature by the host');
  if (!byEdge) return refuse('edge_signature_missing', 'no counter-signature by the edge');
  return { ok: true, value: true };
}

async function compare(receipt: Receipt, expected: Expectation): Promise<VerificationFailure | undefined> {
  if (expected.executionId !== undefined && expected.executionId !== receipt.execution_id) {
    return refuse('execution_mismatch', 'the receipt is of another execution');
  }
  if (expected.sessionId !== undefined && expected.sessionId !== receipt.session_id) {
    return refuse('session_mismatch', 'the receipt is of another session');
  }
  if (expected.tenant !== undefined && (await sha256Hex(expected.tenant)) !== receipt.tenant_sha256) {
    return refuse('tenant_mismatch', 'the receipt is of another tenant');
  }
  if (expected.grant !== undefined && (await sha256Hex(expected.grant)) !== receipt.grant_sha256) {
    return refuse('grant_mismatch', 'the receipt is of another grant');
  }
  if (expected.argsSha256 !== undefined && expected.argsSha256 !== receipt.args_sha256) {
    return refuse('args_mismatch', 'the receipt is of other arguments');
  }
  for (const name of ['stdout', 'stderr'] as const) {
    const held = expected[name];
    if (held === undefined) continue;
    if (receipt[name].truncated) {
      if (held.presentedAsWhole)
        return refuse('truncation_hidden', `${name} was truncated but is shown as whole`);
      continue;
    }
    if ((await sha256Hex(held.bytes)) !== receipt[name].sha256) {
      return refuse('output_mismatch', `${name} does not hash to the digest in the receipt`);
    }
  }
  return undefined;
}

/** Checks a whole session: every receipt, and that each follows the one before, from the first on. */
export async function verifyChain(
  envelopes: readonly unknown[],
  keys: TrustedKeys,
  sessionId: string,
): Promise<Verified<Receipt[]>> {
  const receipts: Receipt[] = [];
  let previous = FIRST_PREVIOUS_SHA256;
  for (const [index, envelope] of envelopes.entries()) {
    const seq = index + 1;
    const verified = await verifyReceipt(envelope, keys);
    if (!verified.ok) return { ...verified, seq };
    const { receipt, payload } = verified.value;
    const broken = followFailure(receipt, seq, previous, sessionId);
    if (broken !== undefined) return { ...broken, seq };
    previous = await sha256Hex(payload);
    receipts.push(receipt);
  }
  return { ok: true, value: receipts };
}

function followFailure(
  receipt: Receipt,
  seq: number,
  previous: string,
  sessionId: string,
): VerificationFailure | undefined {
  if (receipt.session_id !== sessionId) return refuse('chain_other_session', 'a receipt of another session');
  if (receipt.seq > seq) return refuse('chain_gap', `receipt ${seq} is missing`);
  if (receipt.seq < seq) return refuse('chain_fork', `two receipts have the number ${receipt.seq}`);
  if (receipt.prev_sha256 !== previous)
    return refuse('chain_broken', 'it does not follow the receipt before');
  return undefined;
}
