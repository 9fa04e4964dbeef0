/**
 * A tenant exists with its first request: nobody makes it. So that operators find it, its object tells the index of tenants
 * once, and again with a later request where it was not heard. No request waits for that.
 */
import type { Env } from '../../env.ts';
import { logWarning, messageOf } from '../log.ts';
import { TENANT_INDEX_OBJECT } from '../tenant-index/port.ts';

const SCHEMA = `CREATE TABLE IF NOT EXISTS listed (id INTEGER PRIMARY KEY CHECK (id = 1));`;

export class Listing {
  readonly #sql: SqlStorage;
  readonly #env: Env;
  #isListed: boolean;
  #isTelling = false;

  constructor(storage: DurableObjectStorage, env: Env) {
    this.#sql = storage.sql;
    this.#env = env;
    this.#sql.exec(SCHEMA);
    this.#isListed = this.#sql.exec('SELECT 1 FROM listed').toArray().length > 0;
  }

  /** Undefined: there is nothing to tell. */
  tell(tenant: string): Promise<void> | undefined {
    if (this.#isListed || this.#isTelling) return undefined;
    this.#isTelling = true;
    return this.#tell(tenant);
  }

  async #tell(tenant: string): Promise<void> {
    try {
      await this.#env.TENANT_INDEX.getByName(TENANT_INDEX_OBJECT).note(tenant);
      this.#sql.exec('INSERT INTO listed (id) VALUES (1) ON CONFLICT DO NOTHING');
      this.#isListed = true;
    } catch (error: unknown) {
      logWarning('tenant_not_listed', { tenant, detail: messageOf(error) });
    } finally {
      this.#isTelling = false;
    }
  }
}
