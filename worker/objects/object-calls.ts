/** The doors to the objects: a fresh stub for each call, and their failures as values. */
import type { Outcome } from '../../shared/errors.ts';
import type { Configuration } from '../configuration.ts';
import type { Env } from '../env.ts';
import { invalid } from '../middleware/body.ts';
import { callObject } from '../middleware/call-object.ts';
import { knownTools } from '../tools/known-tools.ts';
import type { ApprovalsPort } from './approvals/port.ts';
import type { ArtifactsPort } from './artifacts/port.ts';
import type { CataloguePort } from './catalogue/port.ts';
import type { HostPort } from './host/port.ts';
import type { KeyedCallPlace, KeyedCallPort } from './keyed-call/port.ts';
import type { PoolPort } from './pool/port.ts';
import type { ProofsPort } from './proofs/port.ts';
import type { RepairPort } from './repair/port.ts';
import type { SessionPort } from './session/port.ts';
import { sessionObjectName } from './session-name.ts';
import type { SnapshotsPort } from './snapshots/port.ts';
import { type SourceOwner, type SourcePort, sourceObjectName } from './source/port.ts';
import type { TenantPort } from './tenant/port.ts';
import { TENANT_INDEX_OBJECT, type TenantIndexPort } from './tenant-index/port.ts';
import type { WebhooksPort } from './webhooks/port.ts';
import type { WorkflowPort } from './workflow/port.ts';

/** A call that changes nothing, or nothing more when it is made twice. */
export const SAFE = { safe: true } as const;
export const UNSAFE = { safe: false } as const;

export type ObjectCalls<Port> = <T>(
  method: (stub: Port & { fetch(request: Request): Promise<Response> }) => Promise<Outcome<T>>,
  about: { safe: boolean },
) => Promise<Outcome<T>>;

export function sessionCalls(env: Env, tenant: string, sessionId: string): ObjectCalls<SessionPort> {
  const name = sessionObjectName(tenant, sessionId);
  return (method, about) => callObject(() => method(env.SESSION.getByName(name)), about);
}

export function tenantCalls(env: Env, tenant: string): ObjectCalls<TenantPort> {
  return (method, about) => callObject(() => method(env.TENANT.getByName(tenant)), about);
}

export function tenantIndexCalls(env: Env): ObjectCalls<TenantIndexPort> {
  return (method, about) => callObject(() => method(env.TENANT_INDEX.getByName(TENANT_INDEX_OBJECT)), about);
}

/** Only for a session id that the tenant has reserved for a key. */
export function keyedCalls(env: Env, { tenant, sessionId }: KeyedCallPlace): ObjectCalls<KeyedCallPort> {
  const name = sessionObjectName(tenant, sessionId);
  return (method, about) => callObject(() => method(env.KEYED_CALL.getByName(name)), about);
}

/** Only for keys that a verified token is bound to. */
export function proofCalls(env: Env, key: string): ObjectCalls<ProofsPort> {
  return (method, about) => callObject(() => method(env.PROOFS.getByName(key)), about);
}

export function workflowCalls(env: Env, tenant: string, workflowId: string): ObjectCalls<WorkflowPort> {
  const name = `${tenant}:${workflowId}`;
  return (method, about) => callObject(() => method(env.WORKFLOW.getByName(name)), about);
}

export function repairCalls(env: Env, tenant: string, repairRunId: string): ObjectCalls<RepairPort> {
  const name = `${tenant}:${repairRunId}`;
  return (method, about) => callObject(() => method(env.REPAIR.getByName(name)), about);
}

export function catalogueCalls(env: Env, tenant: string): ObjectCalls<CataloguePort> {
  return (method, about) => callObject(() => method(env.CATALOGUE.getByName(tenant)), about);
}

/** Whatever comes of it, this isolate asks anew for what it knew of the tenant's tools. */
export function catalogueChanges(env: Env, tenant: string): ObjectCalls<CataloguePort> {
  const calls = catalogueCalls(env, tenant);
  return (method, about) => calls(method, about).finally(() => knownTools.forget(tenant));
}

/** Only for a host that a pool knows: no object wakes for one that was made up. */
export function hostCalls(env: Env, hostId: string): ObjectCalls<HostPort> {
  return (method, about) => callObject(() => method(env.HOST.getByName(hostId)), about);
}

export function approvalCalls(env: Env, tenant: string): ObjectCalls<ApprovalsPort> {
  return (method, about) => callObject(() => method(env.APPROVALS.getByName(tenant)), about);
}

export function sourceCalls(env: Env, owner: SourceOwner): ObjectCalls<SourcePort> {
  return (method, about) => callObject(() => method(env.SOURCE.getByName(sourceObjectName(owner))), about);
}

export function artifactCalls(env: Env, tenant: string): ObjectCalls<ArtifactsPort> {
  return (method, about) => callObject(() => method(env.ARTIFACTS.getByName(tenant)), about);
}

export function snapshotCalls(env: Env, tenant: string): ObjectCalls<SnapshotsPort> {
  return (method, about) => callObject(() => method(env.SNAPSHOT_INDEX.getByName(tenant)), about);
}

export function webhookCalls(env: Env, tenant: string): ObjectCalls<WebhooksPort> {
  return (method, about) => callObject(() => method(env.WEBHOOKS.getByName(tenant)), about);
}

/** `path` is where the request names the pool: only a pool of this edge has an object. */
export function poolCalls(
  { env, configuration }: { env: Env; configuration: Configuration },
  pool: string,
  path: string,
): ObjectCalls<PoolPort> {
  if (!configuration.pools.has(pool)) throw invalid([{ path, expected: 'a pool of this edge' }]);
  return (method, about) => callObject(() => method(env.POOL.getByName(pool)), about);
}
