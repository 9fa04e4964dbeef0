/** Grants of this session. The row that names a grant is written before the grant is sent. */
import type { ArgumentConstraint } from '../../../../shared/argument-constraint.ts';
import { sha256Hex } from '../../../../shared/digest.ts';
import {
  audienceOf,
  type GrantAct,
  type GrantClaims,
  type Relay,
  signGrant,
} from '../../../../shared/grant.ts';
import { newId } from '../../../../shared/ids.ts';
import { GRANT_LIFETIME_S } from '../../../../shared/limits.ts';
import { egressClaim } from '../../../../shared/network.ts';
import type { Configuration } from '../../../configuration.ts';
import type { SessionFacts } from '../rows/records.ts';

export interface GrantRequest {
  act: GrantAct;
  epoch: number;
  seq: number;
  payload: { sha256: string };
  timeoutMs: number;
  /** What arguments or path are held to, where the host looks at it again. */
  constraints?: readonly ArgumentConstraint[] | null;
  execution?: {
    executionId: string;
    tool: string | null;
    toolVersion: string | null;
    relay: Relay | null;
    stdin: boolean | null;
  };
}

export interface IssuedGrant {
  token: string;
  jti: string;
  sha256: string;
}

export async function issueGrant(
  facts: SessionFacts,
  request: GrantRequest,
  { origin, grant: signer }: Configuration,
): Promise<IssuedGrant> {
  const nowS = Math.floor(Date.now() / 1000);
  const claims: GrantClaims = {
    iss: origin,
    aud: audienceOf(facts.hostId),
    sub: facts.subject,
    tenant: facts.tenant,
    sid: facts.sessionId,
    epoch: request.epoch,
    seq: request.seq,
    act: request.act,
    exec: request.execution?.executionId ?? null,
    tool: request.execution?.tool ?? null,
    tool_version: request.execution?.toolVersion ?? null,
    relay: request.execution?.relay ?? null,
    stdin: request.execution?.stdin ?? null,
    args_sha256: request.payload.sha256,
    image: facts.imageDigest,
    limits: { ...facts.limits, timeout_ms: request.timeoutMs },
    egress: await egressClaim(facts.network),
    ...(request.constraints?.length ? { constraints: [...request.constraints] } : {}),
    jti: newId('jti'),
    iat: nowS,
    exp: nowS + GRANT_LIFETIME_S,
  };
  const token = await signGrant(claims, signer);
  return { token, jti: claims.jti, sha256: await sha256Hex(token) };
}
