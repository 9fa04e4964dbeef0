/** SQL of the catalogue: the tools of a tenant, and the versions that they had. */
import * as z from 'zod';
import { nameFault, type RegisteredTool, RegisteredToolSchema } from '../../../shared/registered-tool.ts';
import { parseExactly } from '../../json/exact-integers.ts';
import type { NameKind, StoredTool } from './port.ts';

const SCHEMA = `
CREATE TABLE IF NOT EXISTS tool (
  name TEXT PRIMARY KEY,
  function_name TEXT NOT NULL,
  mcp_name TEXT NOT NULL,
  definition TEXT NOT NULL,
  credentials TEXT
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS tool_by_function_name ON tool (function_name);
CREATE INDEX IF NOT EXISTS tool_by_mcp_name ON tool (mcp_name);
-- Rises with each change; life tells it from that of a catalogue that was lost.
CREATE TABLE IF NOT EXISTS revision (id INTEGER PRIMARY KEY CHECK (id = 1), life TEXT NOT NULL, n INTEGER NOT NULL);
INSERT INTO revision (id, life, n) VALUES (1, lower(hex(randomblob(8))), 1) ON CONFLICT DO NOTHING;
CREATE TABLE IF NOT EXISTS tool_version (
  name TEXT NOT NULL,
  version TEXT NOT NULL,
  n INTEGER NOT NULL,
  definition TEXT NOT NULL,
  PRIMARY KEY (name, version)
) WITHOUT ROWID;
`;

/** Its name may be a built-in tool's by now: then it is called no more, and says why. */
function asItStands(tool: RegisteredTool): RegisteredTool {
  const fault = nameFault(tool.name);
  return fault === undefined ? tool : { ...tool, status: 'broken', reason: `name: expected ${fault}` };
}

const RowSchema = z.object({
  definition: z.string().transform((text) => asItStands(RegisteredToolSchema.parse(parseExactly(text)))),
  credentials: z.string().nullable(),
});
const KeySchema = z.object({ name: z.string(), key: z.string() });
const VersionSchema = z.object({ version: z.string(), n: z.number() });
const RevisionSchema = z.object({ life: z.string(), n: z.number() });
const DefinitionSchema = RowSchema.pick({ definition: true });

export interface ToolRow extends StoredTool {
  functionName: string;
  mcpName: string;
}

export class CatalogueStore {
  readonly #storage: DurableObjectStorage;
  readonly #sql: SqlStorage;

  constructor(storage: DurableObjectStorage) {
    this.#storage = storage;
    this.#sql = storage.sql;
    this.#sql.exec(SCHEMA);
  }

  put({ tool, sealedCredentials, functionName, mcpName }: ToolRow, maxVersions: number): void {
    const definition = JSON.stringify(tool);
    this.#storage.transactionSync(() => {
      this.#sql.exec(
        `INSERT INTO tool (name, function_name, mcp_name, definition, credentials) VALUES (?, ?, ?, ?, ?)
         ON CONFLICT (name) DO UPDATE SET definition = excluded.definition, credentials = excluded.credentials`,
        tool.name,
        functionName,
        mcpName,
        definition,
        sealedCredentials,
      );
      const n = Math.max(0, ...this.versions(tool.name).map((version) => version.n)) + 1;
      this.#sql.exec(
        `INSERT INTO tool_version (name, version, n, definition) VALUES (?, ?, ?, ?)
         ON CONFLICT (name, version) DO UPDATE SET n = excluded.n, definition = excluded.definition`,
        tool.name,
        tool.version,
        n,
        definition,
      );
      for (const { version } of this.versions(tool.name).slice(maxVersions)) {
        this.#sql.exec('DELETE FROM tool_version WHERE name = ? AND version = ?', tool.name, version);
      }
      this.#changed();
    });
  }

  /** The newest first. */
  versions(name: string): { version: string; n: number }[] {
    return this.#sql
      .exec('SELECT version, n FROM tool_version WHERE name = ? ORDER BY n DESC', name)
      .toArray()
      .map((row) => VersionSchema.parse(row));
  }

  version(name: string, version: string): RegisteredTool | undefined {
    const [row] = this.#sql
      .exec('SELECT definition FROM tool_version WHERE name = ? AND version = ?', name, version)
      .toArray();
    return row === undefined ? undefined : DefinitionSchema.parse(row).definition;
  }

  remove(name: string): void {
    this.#storage.transactionSync(() => {
      this.#sql.exec('DELETE FROM tool_version WHERE name = ?', name);
      this.#sql.exec('DELETE FROM tool WHERE name = ?', name);
      this.#changed();
    });
  }

  #changed(): void {
    this.#sql.exec('UPDATE revision SET n = n + 1');
  }

  count(): number {
    const [row] = this.#sql.exec('SELECT count(*) AS tools FROM tool').toArray();
    return Number(row?.tools ?? 0);
  }

  /** Another one after each change. */
  revision(): string {
    const { life, n } = RevisionSchema.parse(this.#sql.exec('SELECT life, n FROM revision').one());
    return `${life} ${n}`;
  }

  /** Of all definitions. */
  characters(): number {
    const [row] = this.#sql.exec('SELECT sum(length(definition)) AS characters FROM tool').toArray();
    return Number(row?.characters ?? 0);
  }

  find(name: string, kind: NameKind): StoredTool | undefined {
    const [row] = this.#sql
      .exec(`SELECT definition, credentials FROM tool WHERE ${kind} = ? LIMIT 1`, name)
      .toArray();
    if (row === undefined) return undefined;
    const { definition, credentials } = RowSchema.parse(row);
    return { tool: definition, sealedCredentials: credentials };
  }

  /** In the order of that kind of name, those after `after`. */
  *keysAfter(after: string, order: NameKind): Generator<{ key: string; name: string }> {
    const cursor = this.#sql.exec(
      `SELECT name, ${order} AS key FROM tool WHERE ${order} > ? ORDER BY ${order}`,
      after,
    );
    for (const row of cursor) yield KeySchema.parse(row);
  }

  *all(): Generator<StoredTool> {
    for (const row of this.#sql.exec('SELECT definition, credentials FROM tool')) {
      const { definition, credentials } = RowSchema.parse(row);
      yield { tool: definition, sealedCredentials: credentials };
    }
  }
}
