/** The tables of an object: made once, and looked at again only where this version of the program asks for other ones. */
import * as z from 'zod';

const BOOK =
  'CREATE TABLE IF NOT EXISTS made_schema (name TEXT PRIMARY KEY, text TEXT NOT NULL) WITHOUT ROWID';
const MadeSchema = z.object({ name: z.string(), text: z.string() });
const TableSchema = z.object({ name: z.string() });

export interface Schema {
  /** Of all that share the object's tables. */
  name: string;
  /** Statements that change nothing where they were run before. */
  statements: string;
  /** Of tables that former versions made without them. */
  newerColumns?: readonly NewerColumn[];
  /** What needs those columns. */
  afterwards?: string;
}

/** `filledWith`: an expression in SQL, of what the rows get that are there before the column is. */
export type NewerColumn = readonly [table: string, column: string, type: string, filledWith?: string];

/** What is known to be made. */
interface Known {
  /** Texts by name. */
  texts: Map<string, string>;
  /** Tables of an object whose book is empty: a version made them that kept none. */
  tables: ReadonlySet<string>;
}

/** By the storage of an object in memory. */
const made = new WeakMap<DurableObjectStorage, Known>();

/**
 * An object that wakes asks the database once what there is, for all of its stores, instead of once for each table and
 * column. The whole text is compared: a schema that changes is run again without anybody counting versions.
 */
export function ensureSchema(storage: DurableObjectStorage, schema: Schema): void {
  const { name, statements, newerColumns = [], afterwards = '' } = schema;
  const { sql } = storage;
  const known = knownTo(storage);
  const text = [statements, ...newerColumns.map((column) => column.join(' ')), afterwards].join('\n');
  if (known.texts.get(name) === text) return;
  sql.exec(statements);
  for (const column of newerColumns) ensureColumn(sql, column);
  if (afterwards !== '') sql.exec(afterwards);
  sql.exec('INSERT OR REPLACE INTO made_schema (name, text) VALUES (?, ?)', name, text);
  known.texts.set(name, text);
}

function ensureColumn(sql: SqlStorage, [table, column, type, filledWith]: NewerColumn): void {
  const columns = sql.exec(`SELECT name FROM pragma_table_info('${table}')`).toArray();
  if (columns.some(({ name }) => name === column)) return;
  sql.exec(`ALTER TABLE ${table} ADD COLUMN ${column} ${type}`);
  if (filledWith !== undefined) sql.exec(`UPDATE ${table} SET ${column} = ${filledWith}`);
}

function knownTo(storage: DurableObjectStorage): Known {
  const known = made.get(storage);
  if (known !== undefined) return known;
  const { sql } = storage;
  sql.exec(BOOK);
  const rows = sql.exec('SELECT name, text FROM made_schema').toArray();
  const texts = new Map(rows.map((row) => MadeSchema.parse(row)).map(({ name, text }) => [name, text]));
  const read = { texts, tables: new Set(texts.size === 0 ? tablesIn(sql) : []) };
  made.set(storage, read);
  return read;
}

function tablesIn(sql: SqlStorage): string[] {
  const rows = sql.exec("SELECT name FROM sqlite_master WHERE type = 'table'").toArray();
  return rows.map((row) => TableSchema.parse(row).name);
}

/**
 * Tables that most objects never need: made at the first write, as each costs an object pages to write and to keep. Before
 * that all that is asked of them is empty.
 */
export class LateTables {
  readonly #storage: DurableObjectStorage;
  readonly #schema: Schema;

  /** `table`: any one of them. */
  constructor(storage: DurableObjectStorage, schema: Schema & { table: string }) {
    const { table, ...rest } = schema;
    this.#storage = storage;
    this.#schema = rest;
    // At once: the book is not empty any more when the object wakes the next time.
    if (knownTo(storage).tables.has(table)) ensureSchema(storage, rest);
  }

  get areMade(): boolean {
    return knownTo(this.#storage).texts.has(this.#schema.name);
  }

  /** With the tables, whether they were there before or not. */
  get sql(): SqlStorage {
    ensureSchema(this.#storage, this.#schema);
    return this.#storage.sql;
  }
}
