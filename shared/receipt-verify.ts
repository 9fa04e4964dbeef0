/** Verification of receipts and of a session's chain, offline, with public keys only. */
import * as z from 'zod';
import { sha256Hex } from './digest.ts';
import { type Envelope, EnvelopeSchema, preAuthenticationEncoding } from './dsse.ts';
import type { EdgeReceipt } from './edge-receipt.ts';
import { verifyEdgeChain } from './edge-receipt-verify.ts';
import { SessionIdSchema } from './ids.ts';
import { FIRST_PREVIOUS_SHA256, RECEIPT_PAYLOAD_TYPE, type Receipt, ReceiptSchema } from './receipt.ts';
import { parseEnvelope, readPayload, signatureFailure } from './signed-payload.ts';
import {
  refuse,
  type TrustedKeys,
  TrustedKeysSchema,
  type VerificationFailure,
  type Verified,
} from './verification.ts';

/** What `GET /v1/sessions/{id}/receipts` answers and the verifier reads: both chains in order, or a part of them. */
export const ReceiptExportSchema = z.object({
  session_id: SessionIdSchema,
  /** What hosts signed of what they ran. */
  receipts: z.array(EnvelopeSchema),
  /** What the edge signed of what no host ran. */
  edge_receipts: z.array(EnvelopeSchema).default([]),
  keys: TrustedKeysSchema,
  /** Position of the last receipt here, where more follow: the next part is had by `after`. */
  next_after: z.int().min(1).nullable().default(null),
  /** The same of `edge_receipts`, by `edge_after`. */
  next_edge_after: z.int().min(1).nullable().default(null),
});

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

interface ReadReceipt {
  envelope: Envelope;
  receipt: Receipt;
  payload: Uint8Array<ArrayBuffer>;
}

/** Parses an envelope and its payload without judging signatures. */
export function readReceipt(input: unknown): Verified<ReadReceipt> {
  const envelope = parseEnvelope(input);
  return envelope.ok ? readEnvelope(envelope.value) : envelope;
}

const FORM = { payloadType: RECEIPT_PAYLOAD_TYPE, schema: ReceiptSchema, name: 'receipt' };

export function readEnvelope(envelope: Envelope): Verified<ReadReceipt> {
  const read = readPayload(envelope, FORM);
  if (!read.ok) return read;
  const { value: receipt, payload } = read.value;
  return { ok: true, value: { envelope, receipt, payload } };
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
    const fault = await signatureFailure(signature.sig, { message, key: dated, signedAtS: finishedAtS });
    if (fault !== undefined) return fault;
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

/** Both chains of a session, from their beginnings on; `more`: what is given of the hosts' chain is not all. */
export interface SessionReceipts {
  sessionId: string;
  receipts: readonly unknown[];
  edgeReceipts: readonly unknown[];
  more: boolean;
}

export type SessionVerified =
  | { ok: true; receipts: Receipt[]; edgeReceipts: EdgeReceipt[] }
  | (VerificationFailure & { chain: 'host' | 'edge' });

/** Checks a session as it is exported: the hosts' chain, the edge's, and that they belong together. */
export async function verifySessionReceipts(
  { sessionId, receipts, edgeReceipts, more }: SessionReceipts,
  keys: TrustedKeys,
): Promise<SessionVerified> {
  const chain = await verifyLinks(receipts, keys, sessionId);
  if (!chain.ok) return { ...chain, chain: 'host' };
  const hostChain = { sha256s: chain.value.map(({ sha256 }) => sha256), isWhole: !more };
  const ofEdge = await verifyEdgeChain(edgeReceipts, keys, { sessionId, hostChain });
  if (!ofEdge.ok) return { ...ofEdge, chain: 'edge' };
  return { ok: true, receipts: chain.value.map(({ receipt }) => receipt), edgeReceipts: ofEdge.value };
}

/** Checks what hosts signed: every receipt, and that each follows the one before, from the first on. */
export async function verifyChain(
  envelopes: readonly unknown[],
  keys: TrustedKeys,
  sessionId: string,
): Promise<Verified<Receipt[]>> {
  const links = await verifyLinks(envelopes, keys, sessionId);
  return links.ok ? { ok: true, value: links.value.map(({ receipt }) => receipt) } : links;
}

async function verifyLinks(
  envelopes: readonly unknown[],
  keys: TrustedKeys,
  sessionId: string,
): Promise<Verified<{ receipt: Receipt; sha256: string }[]>> {
  const links: { receipt: Receipt; sha256: string }[] = [];
  let previous = FIRST_PREVIOUS_SHA256;
  for (const [index, envelope] of envelopes.entries()) {
    const seq = index + 1;
    const verified = await verifyReceipt(envelope, keys);
    if (!verified.ok) return { ...verified, seq };
    const { receipt, payload } = verified.value;
    const broken = followFailure(receipt, seq, previous, sessionId);
    if (broken !== undefined) return { ...broken, seq };
    previous = await sha256Hex(payload);
    links.push({ receipt, sha256: previous });
  }
  return { ok: true, value: links };
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
