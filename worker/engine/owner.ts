/** Calls in the name of whoever started a run on the engine. */
import { newId } from '../../shared/ids.ts';
import type { Configuration } from '../configuration.ts';
import type { Env } from '../env.ts';
import type { TenantPrincipal } from '../identity/principal.ts';
import { Refusal, unwrap } from '../middleware/refusal.ts';
import { SAFE, tenantCalls } from '../objects/object-calls.ts';
import type { Owner } from '../objects/owner.ts';
import { type BarredCaller, barOf } from '../objects/tenant/bars/bars.ts';
import type { RequestLease } from '../objects/tenant/port.ts';
import type { Exchange } from '../routing/route.ts';

export interface RunSurroundings {
  env: Env;
  configuration: Configuration;
  waitUntil: (promise: Promise<unknown>) => void;
}

export function ownerOf(principal: TenantPrincipal): Owner {
  const { tenant, subject, client, scopes, toolPolicy } = principal;
  const { tokenId, issuedAtMs, apiKeyId, expiresAtMs } = principal;
  const rights = { scopes: [...scopes], toolPolicy };
  return { tenant, subject, client, ...rights, tokenId, issuedAtMs, apiKeyId, expiresAtMs };
}

/** As if the owner made the request now. */
export function ownersExchange(
  { env, configuration, waitUntil }: RunSurroundings,
  { scopes, ...owner }: Owner,
): Exchange<'tenant'> {
  return {
    request: new Request(configuration.origin),
    env,
    configuration,
    principal: { kind: 'tenant', ...owner, scopes: new Set(scopes) },
    requestId: newId('req'),
    receivedMs: Date.now(),
    waitUntil,
  };
}

/** A run counts as its owner's requests do, and ends where the owner may call no more. */
export async function admitOwner(env: Env, owner: BarredCaller & { tenant: string }): Promise<void> {
  const { granted } = await requireUnbarred(env, owner);
  if (granted === 0) {
    throw new Refusal({ ok: false, code: 'rate_limited', detail: 'the tenant is over its rate' });
  }
}

/** Counts as that many requests, as far as the rate has them, and holds whatever the rate. */
export async function requireUnbarred(
  env: Env,
  owner: BarredCaller & { tenant: string },
  requests = 1,
): Promise<RequestLease> {
  const { tenant, tokenId, subject, issuedAtMs, apiKeyId } = owner;
  const about = { tenant, subject, owner: { tokenId, subject, issuedAtMs, apiKeyId } };
  const lease = unwrap(await tenantCalls(env, tenant)((stub) => stub.leaseRequests(requests, about), SAFE));
  const { disabled, bars } = lease.standing;
  if (disabled || lease.endsRights || (bars !== null && barOf(bars, owner) !== undefined)) {
    const detail = 'the tenant is disabled, or the token revoked';
    throw new Refusal({ ok: false, code: 'unauthenticated', detail });
  }
  return lease;
}
