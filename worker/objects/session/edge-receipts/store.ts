/** SQL of the receipts that the edge signs alone. One that is not signed yet has what it will say, and no envelope. */
import * as z from 'zod';
import { type Envelope, EnvelopeSchema } from '../../../../shared/dsse.ts';
import { EdgeReceiptSchema } from '../../../../shared/edge-receipt.ts';
import { LateTables } from '../../schema.ts';
import { json } from '../rows/records.ts';

const SCHEMA = `
CREATE TABLE IF NOT EXISTS edge_receipt (
  seq INTEGER PRIMARY KEY, executionId TEXT NOT NULL UNIQUE,
  facts TEXT, result TEXT, envelope TEXT, sha256 TEXT
);
`;

/** What is known when a call ends; the rest is of the chain and of the signer. */
const EdgeReceiptFactsSchema = EdgeReceiptSchema.omit({
  v: true,
  issuer: true,
  tenant_sha256: true,
  session_id: true,
  seq: true,
  prev_sha256: true,
  key_id: true,
}).extend({ result: EdgeReceiptSchema.shape.result.nullable() });
export type EdgeReceiptFacts = z.infer<typeof EdgeReceiptFactsSchema>;

const UnsignedSchema = z.object({
  seq: z.number(),
  facts: json(EdgeReceiptFactsSchema),
  /** JSON of what the call gave, where its digest is not known yet. */
  result: z.string().nullable(),
});
export type UnsignedReceipt = z.infer<typeof UnsignedSchema>;

export class EdgeReceiptStore {
  readonly #tables: LateTables;

  constructor(storage: DurableObjectStorage) {
    const schema = { name: 'edge-receipts', table: 'edge_receipt', statements: SCHEMA };
    this.#tables = new LateTables(storage, schema);
  }

  /** False where the execution has one. */
  insert(facts: EdgeReceiptFacts, result: string | null): boolean {
    const inserted = this.#tables.sql.exec(
      'INSERT INTO edge_receipt (executionId, facts, result) VALUES (?, ?, ?) ON CONFLICT DO NOTHING',
      facts.execution_id,
      JSON.stringify(facts),
      result,
    );
    return inserted.rowsWritten > 0;
  }

  firstUnsigned(): UnsignedReceipt | undefined {
    if (!this.#tables.areMade) return undefined;
    const found = this.#tables.sql.exec(
      'SELECT seq, facts, result FROM edge_receipt WHERE envelope IS NULL ORDER BY seq LIMIT 1',
    );
    const [row] = found.toArray();
    return row === undefined ? undefined : UnsignedSchema.parse(row);
  }

  signed(seq: number, { envelope, sha256 }: { envelope: Envelope; sha256: string }): void {
    this.#tables.sql.exec(
      'UPDATE edge_receipt SET envelope = ?, sha256 = ?, facts = NULL, result = NULL WHERE seq = ?',
      JSON.stringify(envelope),
      sha256,
      seq,
    );
  }

  /** Of the payload; undefined where there is none of this number. */
  sha256(seq: number): string | undefined {
    if (!this.#tables.areMade) return undefined;
    const [row] = this.#tables.sql.exec('SELECT sha256 FROM edge_receipt WHERE seq = ?', seq).toArray();
    return typeof row?.sha256 === 'string' ? row.sha256 : undefined;
  }

  /** Null: it is there, and not signed yet. */
  find(executionId: string): Envelope | null | undefined {
    if (!this.#tables.areMade) return undefined;
    const [row] = this.#tables.sql
      .exec('SELECT envelope FROM edge_receipt WHERE executionId = ?', executionId)
      .toArray();
    return row === undefined ? undefined : json(EnvelopeSchema).nullable().parse(row.envelope);
  }

  /** Signed ones behind position `after`, in order. */
  page(after: number, limit: number): Envelope[] {
    if (!this.#tables.areMade) return [];
    const found = this.#tables.sql.exec(
      'SELECT envelope FROM edge_receipt WHERE seq > ? AND envelope IS NOT NULL ORDER BY seq LIMIT ?',
      after,
      limit,
    );
    return found.toArray().map((row) => json(EnvelopeSchema).parse(row.envelope));
  }

  clear(): void {
    if (this.#tables.areMade) this.#tables.sql.exec('DELETE FROM edge_receipt');
  }
}
