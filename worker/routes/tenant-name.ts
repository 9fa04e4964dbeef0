/** The tenant that a path of the operator's names. */
import { TenantSchema } from '../../shared/ids.ts';
import { notFound } from './own-session.ts';

export function tenantOf(name: string): string {
  const tenant = TenantSchema.safeParse(name);
  if (tenant.success) return tenant.data;
  throw notFound('no tenant can have this name');
}
