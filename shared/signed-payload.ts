/** Payloads in DSSE envelopes, read and their signatures checked: what receipts of hosts and of the edge have in common. */
import type * as z from 'zod';
import { type Envelope, EnvelopeSchema, envelopePayload, verifySignature } from './dsse.ts';
import { importPublicKey } from './ed25519.ts';
import { type DatedKey, isLiveAt } from './key-set.ts';
import { refuse, type VerificationFailure, type Verified } from './verification.ts';

export interface SignedPayload<T> {
  envelope: Envelope;
  value: T;
  payload: Uint8Array<ArrayBuffer>;
}

export function parseEnvelope(input: unknown): Verified<Envelope> {
  const envelope = EnvelopeSchema.safeParse(input);
  if (envelope.success) return { ok: true, value: envelope.data };
  return refuse('envelope_malformed', `envelope: ${envelope.error.issues[0]?.message ?? 'not an object'}`);
}

const payloadDecoder = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });

/** Parses the payload without judging signatures. */
export function readPayload<T>(
  envelope: Envelope,
  { payloadType, schema, name }: { payloadType: string; schema: z.ZodType<T>; name: string },
): Verified<SignedPayload<T>> {
  if (envelope.payloadType !== payloadType) {
    return refuse('payload_type_unknown', `payloadType must be ${payloadType}`);
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
  const value = schema.safeParse(parsed);
  if (!value.success) {
    const issue = value.error.issues[0];
    return refuse(
      'payload_malformed',
      `${name}.${issue?.path.join('.') ?? ''}: ${issue?.message ?? 'wrong'}`,
    );
  }
  return { ok: true, value: { envelope, value: value.data, payload } };
}

/** Whether the key was good at that moment, and signed the message. `signedAtS` in epoch seconds. */
export async function signatureFailure(
  sig: string,
  { message, key: dated, signedAtS }: { message: Uint8Array; key: DatedKey; signedAtS: number },
): Promise<VerificationFailure | undefined> {
  if (dated.revoked_at !== null && signedAtS >= dated.revoked_at) {
    return refuse('key_revoked', `the key ${dated.kid} was revoked before the receipt was signed`);
  }
  if (!isLiveAt(dated, signedAtS)) {
    return refuse('key_not_valid_then', `the key ${dated.kid} was not valid then`);
  }
  const key = await importPublicKey(dated.jwk);
  if (key === undefined || !(await verifySignature(sig, message, key))) {
    return refuse('signature_invalid', `the signature by ${dated.kid} does not verify`);
  }
  return undefined;
}
