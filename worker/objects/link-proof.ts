/** First half of every link: the edge challenges, the host proves that it holds the key of its certificate. */
import { verifySignature } from '../../shared/dsse.ts';
import { importPublicKey } from '../../shared/ed25519.ts';
import { toBase64Url } from '../../shared/encoding.ts';
import { CLOSE_PROTOCOL_UNKNOWN, CLOSE_REVOKED, encodeFrame, proofMessage } from '../../shared/frames.ts';

const NONCE_BYTES = 32;

export function newChallenge(): { nonce: string; frame: Uint8Array } {
  const nonce = toBase64Url(crypto.getRandomValues(new Uint8Array(NONCE_BYTES)));
  return { nonce, frame: encodeFrame({ type: 'challenge', nonce }) };
}

export async function isProof(
  signature: string,
  link: { origin: string; hostId: string; publicKeyX: string; nonce: string; purpose: string },
): Promise<boolean> {
  const key = await importPublicKey({ kty: 'OKP', crv: 'Ed25519', x: link.publicKeyX });
  return key !== undefined && (await verifySignature(signature, proofMessage(link), key));
}

/** WebSocket close codes (RFC 6455 section 7.4.1), and three of ours: for a peer that sends too much too fast, is too old, or was revoked. */
export const CLOSE = {
  normal: 1000,
  violation: 1008,
  tooBig: 1009,
  internal: 1011,
  tooFast: 4029,
  protocolUnknown: CLOSE_PROTOCOL_UNKNOWN,
  revoked: CLOSE_REVOKED,
} as const;
