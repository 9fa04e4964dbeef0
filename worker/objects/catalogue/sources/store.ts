/** SQL of the tool sources of a tenant, and of which tools came from which. */
import * as z from 'zod';
import { type ToolSource, ToolSourceSchema } from '../../../../shared/tool-source.ts';

const SCHEMA = `
CREATE TABLE IF NOT EXISTS tool_source (
  name TEXT PRIMARY KEY,
  revision INTEGER NOT NULL,
  source TEXT NOT NULL,
  rights TEXT NOT NULL,
  secrets TEXT
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS tool_of_source (
  name TEXT PRIMARY KEY,
  source TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS shared_tools (
  n INTEGER PRIMARY KEY CHECK (n = 1),
  revision TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS tool_of_source_by_source ON tool_of_source (source);
`;

const RowSchema = z.object({
  revision: z.number(),
  source: z.string().transform((text) => ToolSourceSchema.parse(JSON.parse(text))),
  rights: z.string().transform((text) => z.array(z.string()).parse(JSON.parse(text))),
  secrets: z.string().nullable(),
});
const NameSchema = z.object({ name: z.string() });

export interface SourceRow {
  /** Rises with each change by the tenant: what was found for a former one is not taken. */
  revision: number;
  source: ToolSource;
  /** Scopes of who made it. */
  rights: string[];
  secrets: string | null;
}

export class SourceStore {
  readonly #sql: SqlStorage;

  constructor(storage: DurableObjectStorage) {
    this.#sql = storage.sql;
    this.#sql.exec(SCHEMA);
  }

  find(name: string): SourceRow | undefined {
    const [row] = this.#sql.exec('SELECT * FROM tool_source WHERE name = ?', name).toArray();
    return row === undefined ? undefined : RowSchema.parse(row);
  }

  all(): SourceRow[] {
    return this.#sql
      .exec('SELECT * FROM tool_source ORDER BY name')
      .toArray()
      .map((row) => RowSchema.parse(row));
  }

  count(): number {
    const [row] = this.#sql.exec('SELECT count(*) AS sources FROM tool_source').toArray();
    return Number(row?.sources ?? 0);
  }

  put({ source, revision, rights, secrets }: SourceRow): void {
    this.#sql.exec(
      `INSERT INTO tool_source (name, revision, source, rights, secrets) VALUES (?, ?, ?, ?, ?)
       ON CONFLICT (name) DO UPDATE SET revision = excluded.revision, source = excluded.source,
         rights = excluded.rights, secrets = excluded.secrets`,
      source.name,
      revision,
      JSON.stringify(source),
      JSON.stringify(rights),
      secrets,
    );
  }

  remove(name: string): void {
    this.#sql.exec('DELETE FROM tool_source WHERE name = ?', name);
  }

  /** Of the tools for all that were copied last; empty where there were none. */
  get sharedRevision(): string {
    const [row] = this.#sql.exec('SELECT revision FROM shared_tools').toArray();
    return typeof row?.revision === 'string' ? row.revision : '';
  }

  set sharedRevision(revision: string) {
    this.#sql.exec('INSERT OR REPLACE INTO shared_tools (n, revision) VALUES (1, ?)', revision);
  }

  toolNames(source: string): string[] {
    return this.#sql
      .exec('SELECT name FROM tool_of_source WHERE source = ?', source)
      .toArray()
      .map((row) => NameSchema.parse(row).name);
  }

  noteTool(name: string, source: string): void {
    this.#sql.exec('INSERT OR REPLACE INTO tool_of_source (name, source) VALUES (?, ?)', name, source);
  }

  forgetTool(name: string): void {
    this.#sql.exec('DELETE FROM tool_of_source WHERE name = ?', name);
  }
}
