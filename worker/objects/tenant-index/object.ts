/** The index of tenants: there is one, and each tenant is told to it once. */
import { DurableObject } from 'cloudflare:workers';
import { type Outcome, success } from '../../../shared/errors.ts';
import { type ListedTenant, ListedTenantSchema } from '../../../shared/tenant.ts';
import type { Env } from '../../env.ts';
import type { TenantIndexPort } from './port.ts';

const SCHEMA = `
CREATE TABLE IF NOT EXISTS tenant (tenant TEXT PRIMARY KEY, first_seen_at TEXT NOT NULL) WITHOUT ROWID;
`;

export class TenantIndexObject extends DurableObject<Env> implements TenantIndexPort {
  readonly #sql: SqlStorage;

  constructor(ctx: DurableObjectState, env: Env) {
    super(ctx, env);
    this.#sql = ctx.storage.sql;
    this.#sql.exec(SCHEMA);
  }

  async note(tenant: string): Promise<Outcome<null>> {
    this.#sql.exec(
      'INSERT INTO tenant (tenant, first_seen_at) VALUES (?, ?) ON CONFLICT DO NOTHING',
      tenant,
      new Date().toISOString(),
    );
    return success(null);
  }

  async list({ after, limit }: { after: string; limit: number }): Promise<Outcome<ListedTenant[]>> {
    const rows = this.#sql
      .exec('SELECT tenant, first_seen_at FROM tenant WHERE tenant > ? ORDER BY tenant LIMIT ?', after, limit)
      .toArray();
    return success(rows.map((row) => ListedTenantSchema.parse(row)));
  }
}
