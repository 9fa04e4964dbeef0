/** Verification of receipts that the edge signed alone, and of their chain, offline. */
import { sha256Hex } from './digest.ts';
import { type Envelope, preAuthenticationEncoding } from './dsse.ts';
import { EDGE_RECEIPT_PAYLOAD_TYPE, type EdgeReceipt, EdgeReceiptSchema } from './edge-receipt.ts';
import { FIRST_PREVIOUS_SHA256 } from './receipt.ts';
import { parseEnvelope, readPayload, type SignedPayload, signatureFailure } from './signed-payload.ts';
import { refuse, type TrustedKeys, type VerificationFailure, type Verified } from './verification.ts';

export function readEdgeReceipt(envelope: Envelope): Verified<SignedPayload<EdgeReceipt>> {
  return readPayload(envelope, {
    payloadType: EDGE_RECEIPT_PAYLOAD_TYPE,
    schema: EdgeReceiptSchema,
    name: 'receipt',
  });
}

/** Checks one envelope: form, and the edge's signature with a key that was good then. */
export async function verifyEdgeReceipt(
  input: unknown,
  keys: TrustedKeys,
): Promise<Verified<SignedPayload<EdgeReceipt>>> {
  const envelope = parseEnvelope(input);
  if (!envelope.ok) return envelope;
  const read = readEdgeReceipt(envelope.value);
  if (!read.ok) return read;
  const { value: receipt, payload } = read.value;
  const { signatures, payloadType } = envelope.value;
  if (signatures.length === 0) return refuse('signature_missing', 'the envelope has no signature');
  const message = preAuthenticationEncoding(payloadType, payload);
  const signedAtS = Math.floor(Date.parse(receipt.finished_at) / 1000);
  for (const { keyid, sig } of signatures) {
    const key = keys.edge.find(({ kid }) => kid === keyid && kid === receipt.key_id);
    if (key === undefined) return refuse('key_unknown', `no trusted key of the edge has the id ${keyid}`);
    const fault = await signatureFailure(sig, { message, key, signedAtS });
    if (fault !== undefined) return fault;
  }
  return read;
}

/** The hosts' chain of the session, as far as it is at hand: payload hashes in its order, and whether it is whole. */
export interface KnownHostChain {
  sha256s: readonly string[];
  isWhole: boolean;
}

/** Checks each receipt, that each follows the one before, that its place in the hosts' chain is real, and that no call has two. */
export async function verifyEdgeChain(
  envelopes: readonly unknown[],
  keys: TrustedKeys,
  { sessionId, hostChain }: { sessionId: string; hostChain: KnownHostChain },
): Promise<Verified<EdgeReceipt[]>> {
  const receipts: EdgeReceipt[] = [];
  const seen = new Set<string>();
  let previous = FIRST_PREVIOUS_SHA256;
  let anchorSeq = 0;
  for (const [index, envelope] of envelopes.entries()) {
    const seq = index + 1;
    const verified = await verifyEdgeReceipt(envelope, keys);
    if (!verified.ok) return { ...verified, seq };
    const { value: receipt, payload } = verified.value;
    const broken =
      followFailure(receipt, { seq, previous, sessionId }) ??
      anchorFailure(receipt, anchorSeq, hostChain) ??
      repeatFailure(receipt, seen);
    if (broken !== undefined) return { ...broken, seq };
    anchorSeq = receipt.host_chain.seq;
    previous = await sha256Hex(payload);
    receipts.push(receipt);
  }
  return { ok: true, value: receipts };
}

function followFailure(
  receipt: EdgeReceipt,
  { seq, previous, sessionId }: { seq: number; previous: string; sessionId: string },
): VerificationFailure | undefined {
  if (receipt.session_id !== sessionId) return refuse('chain_other_session', 'a receipt of another session');
  if (receipt.seq > seq) return refuse('chain_gap', `receipt ${seq} is missing`);
  if (receipt.seq < seq) return refuse('chain_fork', `two receipts have the number ${receipt.seq}`);
  if (receipt.prev_sha256 !== previous)
    return refuse('chain_broken', 'it does not follow the receipt before');
  return undefined;
}

function anchorFailure(
  { host_chain: { seq, sha256 } }: EdgeReceipt,
  before: number,
  { sha256s, isWhole }: KnownHostChain,
): VerificationFailure | undefined {
  if (seq < before) {
    return refuse(
      'anchor_mismatch',
      'it names an earlier place in the chain of the hosts than the one before',
    );
  }
  const known = seq === 0 ? FIRST_PREVIOUS_SHA256 : sha256s[seq - 1];
  if (known === undefined && !isWhole) return undefined;
  return known === sha256
    ? undefined
    : refuse('anchor_mismatch', `its place ${seq} in the chain of the hosts is not there`);
}

function repeatFailure(receipt: EdgeReceipt, seen: Set<string>): VerificationFailure | undefined {
  const { execution_id, parent } = receipt;
  const names = [execution_id, ...(parent === null ? [] : [`${parent.execution_id}:${parent.call}`])];
  if (names.some((name) => seen.has(name))) return refuse('call_repeated', 'the call has a receipt already');
  for (const name of names) seen.add(name);
  return undefined;
}
