/** SQL of the index of a tenant's workflows: each is kept as long as its record. */
import * as z from 'zod';
import type { LabelTerm } from '../../../../shared/session.ts';
import { type WorkflowEntry, WorkflowEntrySchema, type WorkflowStatus } from '../../../../shared/workflow.ts';
import type { ListPosition } from '../list-cursor.ts';

const SCHEMA = `
CREATE TABLE IF NOT EXISTS workflow (
  workflow_id TEXT PRIMARY KEY, subject TEXT NOT NULL, created_at TEXT NOT NULL, entry TEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS workflow_by_age ON workflow (subject, created_at, workflow_id);
`;

const RowSchema = z.object({
  entry: z.string().transform((text) => WorkflowEntrySchema.parse(JSON.parse(text))),
});

export interface WorkflowSearch {
  subject: string;
  labels: readonly LabelTerm[];
  status: WorkflowStatus | undefined;
}

export class WorkflowIndex {
  readonly #sql: SqlStorage;

  constructor(storage: DurableObjectStorage) {
    this.#sql = storage.sql;
    this.#sql.exec(SCHEMA);
  }

  put(subject: string, entry: WorkflowEntry): void {
    this.#sql.exec(
      `INSERT INTO workflow (workflow_id, subject, created_at, entry) VALUES (?, ?, ?, ?)
       ON CONFLICT (workflow_id) DO UPDATE SET entry = excluded.entry`,
      entry.workflow_id,
      subject,
      entry.created_at,
      JSON.stringify(entry),
    );
  }

  delete(workflowId: string): void {
    this.#sql.exec('DELETE FROM workflow WHERE workflow_id = ?', workflowId);
  }

  /** Newest first, those after `position` that have all the labels. */
  list(
    { subject, labels, status }: WorkflowSearch,
    position: ListPosition | undefined,
    limit: number,
  ): WorkflowEntry[] {
    const conditions = ['workflow.subject = ?'];
    const bindings: (string | number)[] = [subject];
    if (position !== undefined) {
      conditions.push('(workflow.created_at, workflow.workflow_id) < (?, ?)');
      bindings.push(position.createdAt, position.id);
    }
    for (const { key, value } of labels) {
      const ofValue = value === undefined ? '' : ' AND label.value = ?';
      conditions.push(
        `EXISTS (SELECT 1 FROM json_each(workflow.entry, '$.labels') AS label WHERE label.key = ?${ofValue})`,
      );
      bindings.push(key, ...(value === undefined ? [] : [value]));
    }
    if (status !== undefined) {
      conditions.push("json_extract(workflow.entry, '$.status') = ?");
      bindings.push(status);
    }
    const found = this.#sql.exec(
      `SELECT workflow.entry AS entry FROM workflow WHERE ${conditions.join(' AND ')}
       ORDER BY workflow.created_at DESC, workflow.workflow_id DESC LIMIT ?`,
      ...bindings,
      limit,
    );
    return found.toArray().map((row) => RowSchema.parse(row).entry);
  }
}
