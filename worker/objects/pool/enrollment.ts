/** Turns a one-use token and a proof of a key into a host with a certificate. */
import { SignJWT } from 'jose';
import { sha256Hex } from '../../../shared/digest.ts';
import { verifySignature } from '../../../shared/dsse.ts';
import { importPublicKey, keyIdOf, type PublicJwk } from '../../../shared/ed25519.ts';
import { failure, type Outcome, success } from '../../../shared/errors.ts';
import { enrollmentMessage, HOST_CERTIFICATE_TYPE } from '../../../shared/host-api.ts';
import { newId } from '../../../shared/ids.ts';
import type { Configuration } from '../../configuration.ts';
import { nonceExpiry } from './nonce.ts';
import type { Enroll, Enrolled } from './port.ts';
import type { PoolStore } from './store.ts';

/** What of these it was is nobody's business but the operator's. */
export const ENROLLMENT_REFUSED =
  'the enrolment token or the nonce is unknown, used, revoked or expired, or the key was revoked';

export async function enrollHost(
  input: Enroll,
  store: PoolStore,
  configuration: Configuration,
): Promise<Outcome<Enrolled>> {
  const { origin, tagKey } = configuration;
  const nonceExpiresAtMs = await nonceExpiry(tagKey, input.nonce, Date.now());
  const key = await importPublicKey(input.public_key);
  if (nonceExpiresAtMs === undefined || key === undefined) return proofRefused();
  const message = enrollmentMessage({ origin, nonce: input.nonce, publicKeyX: input.public_key.x });
  if (!(await verifySignature(input.signature, message, key))) return proofRefused();

  const host = store.enroll(
    {
      tokenSha256: await sha256Hex(input.enrollment_token),
      nonce: input.nonce,
      nonceExpiresAtMs,
      publicKey: input.public_key.x,
      hostId: newId('hst'),
    },
    Date.now(),
  );
  if (host === undefined) {
    return failure('enrollment_refused', ENROLLMENT_REFUSED);
  }
  return success({
    host_id: host.hostId,
    edge_origin: origin,
    root_key: configuration.root.publicJwk,
    key_set: configuration.signedKeySet,
    certificate: await signCertificate(host, input.public_key, configuration),
  });
}

async function signCertificate(
  host: { hostId: string; pool: string },
  publicKey: PublicJwk,
  { origin, root }: Configuration,
): Promise<string> {
  const jwk = { kty: publicKey.kty, crv: publicKey.crv, x: publicKey.x, kid: await keyIdOf(publicKey) };
  return new SignJWT({ pool: host.pool, cnf: { jwk } })
    .setProtectedHeader({ alg: 'Ed25519', typ: HOST_CERTIFICATE_TYPE, kid: root.keyId })
    .setIssuer(origin)
    .setSubject(host.hostId)
    .setIssuedAt()
    .sign(root.privateKey);
}

function proofRefused(): Outcome<never> {
  return failure('proof_refused', 'the nonce is not live or the signature over it does not verify');
}
