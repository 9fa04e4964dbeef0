/** What others may ask of the index of tenants. */
import type { Outcome } from '../../../shared/errors.ts';
import type { ListedTenant } from '../../../shared/tenant.ts';

export const TENANT_INDEX_OBJECT = 'tenants';

export interface TenantIndexPort {
  /** The tenant is one of this edge; told again it stays as it was. */
  note(tenant: string): Promise<Outcome<null>>;
  /** In the order of their names, those after `after`. */
  list(page: { after: string; limit: number }): Promise<Outcome<ListedTenant[]>>;
}
