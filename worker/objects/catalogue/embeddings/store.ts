/** SQL of the vectors of a catalogue: by the digest of model and text, so that what was embedded once is not again. */
import * as z from 'zod';
import { type Vector, vectorOfBytes } from '../../../embeddings/vector.ts';

const SCHEMA = `
CREATE TABLE IF NOT EXISTS vector (
  digest TEXT PRIMARY KEY,
  bytes BLOB NOT NULL
);
CREATE TABLE IF NOT EXISTS tool_vector (
  name TEXT PRIMARY KEY,
  model TEXT NOT NULL,
  digest TEXT NOT NULL
) WITHOUT ROWID;
`;

const BytesSchema = z.instanceof(ArrayBuffer).transform((bytes) => vectorOfBytes(new Int8Array(bytes)));
const VectorRowSchema = z.object({ bytes: BytesSchema });
const NamedRowSchema = z.object({ name: z.string(), bytes: BytesSchema });

export class VectorStore {
  readonly #sql: SqlStorage;

  constructor(storage: DurableObjectStorage) {
    this.#sql = storage.sql;
    this.#sql.exec(SCHEMA);
  }

  /** Of the tools that have one by this model. */
  *named(model: string): Generator<{ name: string; vector: Vector }> {
    const rows = this.#sql.exec(
      'SELECT name, bytes FROM tool_vector JOIN vector USING (digest) WHERE model = ?',
      model,
    );
    for (const row of rows) {
      const { name, bytes } = NamedRowSchema.parse(row);
      yield { name, vector: bytes };
    }
  }

  find(digest: string): Vector | undefined {
    const [row] = this.#sql.exec('SELECT bytes FROM vector WHERE digest = ?', digest).toArray();
    return row === undefined ? undefined : VectorRowSchema.parse(row).bytes;
  }

  keep(digest: string, { values }: Vector): void {
    this.#sql.exec(
      'INSERT INTO vector (digest, bytes) VALUES (?, ?) ON CONFLICT (digest) DO UPDATE SET bytes = excluded.bytes',
      digest,
      values.slice().buffer,
    );
  }

  link(name: string, model: string, digest: string): void {
    this.#sql.exec(
      `INSERT INTO tool_vector (name, model, digest) VALUES (?, ?, ?)
       ON CONFLICT (name) DO UPDATE SET model = excluded.model, digest = excluded.digest`,
      name,
      model,
      digest,
    );
  }

  unlink(name: string): void {
    this.#sql.exec('DELETE FROM tool_vector WHERE name = ?', name);
  }

  /** Removes those of no tool, where there are more than that in all. */
  prune(max: number): void {
    const [row] = this.#sql.exec('SELECT count(*) AS vectors FROM vector').toArray();
    if (Number(row?.vectors ?? 0) <= max) return;
    this.#sql.exec('DELETE FROM vector WHERE digest NOT IN (SELECT digest FROM tool_vector)');
  }
}
