/** Host certificates: issued at enrolment, presented at each upgrade of a link. */
import { compactVerify } from 'jose';
import { type Failure, failure, type Outcome, success } from '../../shared/errors.ts';
import { HOST_CERTIFICATE_TYPE, HostCertificateClaimsSchema } from '../../shared/host-api.ts';
import type { Configuration } from '../configuration.ts';
import type { HostIdentity } from './identity.ts';

const MAX_CERTIFICATE_LENGTH = 4096;

/** Reads `Bearer <certificate>`. That the peer holds the key in it is proved on the link itself. */
export async function readCertificate(
  authorization: string | null,
  { origin, root }: Configuration,
): Promise<Outcome<HostIdentity>> {
  const token = /^Bearer ([A-Za-z0-9_.-]+)$/.exec(authorization ?? '')?.[1];
  if (token === undefined || token.length > MAX_CERTIFICATE_LENGTH) return refused('no host certificate');
  try {
    const verified = await compactVerify(token, root.publicKey, { algorithms: ['Ed25519'] });
    const { typ, kid } = verified.protectedHeader;
    if (typ !== HOST_CERTIFICATE_TYPE || kid !== root.keyId) return refused('not a host certificate');
    const claims = HostCertificateClaimsSchema.safeParse(
      JSON.parse(new TextDecoder().decode(verified.payload)),
    );
    if (!claims.success || claims.data.iss !== origin) return refused('not a certificate of this edge');
    const { sub, pool, cnf } = claims.data;
    return success({ hostId: sub, pool, publicKeyX: cnf.jwk.x });
  } catch {
    return refused('the host certificate does not verify');
  }
}

function refused(detail: string): Failure {
  return failure('unauthenticated', detail);
}
