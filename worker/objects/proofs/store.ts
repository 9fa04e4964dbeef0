/** SQL of the used proofs of a key. */
const SCHEMA = `
CREATE TABLE IF NOT EXISTS proof (proof_id TEXT PRIMARY KEY, until_at INTEGER NOT NULL) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS proof_by_until ON proof (until_at);
`;

export class ProofStore {
  readonly #sql: SqlStorage;

  constructor(storage: DurableObjectStorage) {
    this.#sql = storage.sql;
    this.#sql.exec(SCHEMA);
  }

  /** False where it is there. */
  add(proofId: string, untilMs: number): boolean {
    const { rowsWritten } = this.#sql.exec(
      'INSERT OR IGNORE INTO proof (proof_id, until_at) VALUES (?, ?)',
      proofId,
      untilMs,
    );
    return rowsWritten > 0;
  }

  forgetBefore(timeMs: number): void {
    this.#sql.exec('DELETE FROM proof WHERE until_at < ?', timeMs);
  }

  get isEmpty(): boolean {
    return this.#sql.exec('SELECT 1 FROM proof LIMIT 1').toArray().length === 0;
  }
}
