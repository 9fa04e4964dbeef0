/** The tenant that a path of the operator's names. */
import { TenantSchema } from '../../shared/ids.ts';
import { notFound } from '../calls/own-session.ts';
import type { Env } from '../env.ts';
import { unwrap } from '../middleware/refusal.ts';
import { SAFE, tenantIndexCalls } from '../objects/object-calls.ts';

export function tenantOf(name: string): string {
  const tenant = TenantSchema.safeParse(name);
  if (tenant.success) return tenant.data;
  throw notFound('no tenant can have this name');
}

/** For what is set of a tenant: from here on it is in the list, also before it calls for the first time. */
export async function listedTenantOf(env: Env, name: string): Promise<string> {
  const tenant = tenantOf(name);
  unwrap(await tenantIndexCalls(env)((stub) => stub.note(tenant), SAFE));
  return tenant;
}
