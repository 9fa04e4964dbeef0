/**
 * DSSE envelopes (github.com/secure-systems-lab/dsse, protocol v1): signatures over the payload type and the raw
 * payload bytes, so nothing has to be canonicalised and what is verified is what is parsed.
 */
import * as z from 'zod';
import { isSmallOrderPoint } from './ed25519.ts';
import { concatBytes, fromBase64, toBase64, utf8 } from './encoding.ts';

export const EnvelopeSchema = z.strictObject({
  payloadType: z.string().min(1).max(128),
  payload: z.string().max(65_536),
  signatures: z.array(z.strictObject({ keyid: z.string().min(1).max(64), sig: z.string().max(128) })).max(4),
});
export type Envelope = z.infer<typeof EnvelopeSchema>;

/** Pre-authentication encoding: what is signed. */
export function preAuthenticationEncoding(payloadType: string, payload: Uint8Array): Uint8Array<ArrayBuffer> {
  const typeBytes = utf8(payloadType);
  return concatBytes([utf8(`DSSEv1 ${typeBytes.length} `), typeBytes, utf8(` ${payload.length} `), payload]);
}

export interface Signer {
  keyId: string;
  privateKey: CryptoKey;
}

export async function signEnvelope(
  payloadType: string,
  payload: Uint8Array,
  signer: Signer,
): Promise<Envelope> {
  return counterSign({ payloadType, payload: toBase64(payload), signatures: [] }, payload, signer);
}

/** Adds a signature over the same bytes. `payload` must be what `envelope.payload` decodes to. */
export async function counterSign(
  envelope: Envelope,
  payload: Uint8Array,
  signer: Signer,
): Promise<Envelope> {
  const message = preAuthenticationEncoding(envelope.payloadType, payload);
  const signature = new Uint8Array(await crypto.subtle.sign('Ed25519', signer.privateKey, message));
  return {
    ...envelope,
    signatures: [...envelope.signatures, { keyid: signer.keyId, sig: toBase64(signature) }],
  };
}

/** The payload bytes; `undefined` where the base64 is not canonical. */
export function envelopePayload(envelope: Envelope): Uint8Array<ArrayBuffer> | undefined {
  return fromBase64(envelope.payload);
}

export interface VerifyingKey {
  /** Raw 32-byte Ed25519 public key. */
  bytes: Uint8Array;
  key: CryptoKey;
}

/** Whether `sig` (base64) is a signature of `message` by `key`. Small-order keys never verify anything. */
export async function verifySignature(sig: string, message: Uint8Array, key: VerifyingKey): Promise<boolean> {
  const signature = fromBase64(sig);
  if (
    signature?.length !== 64 ||
    isSmallOrderPoint(key.bytes) ||
    !isCanonicalScalar(signature.subarray(32))
  ) {
    return false;
  }
  return crypto.subtle.verify('Ed25519', key.key, signature, new Uint8Array(message));
}

/** Group order L of edwards25519, little-endian (RFC 8032 section 5.1). */
const ORDER = 2n ** 252n + 27742317777372353535851937790883648493n;

/** RFC 8032 section 5.1.7 wants S < L; not every engine checks it. */
function isCanonicalScalar(scalar: Uint8Array): boolean {
  // L is a little over 2^252, so nearly every scalar is below that.
  if ((scalar[31] ?? 0) < 0x10) return true;
  let value = 0n;
  for (let index = 31; index >= 0; index -= 1) value = (value << 8n) | BigInt(scalar[index] ?? 0);
  return value < ORDER;
}
