/** SQL of one workflow: what it is, its sessions, and how far its tasks are. */
import * as z from 'zod';
import {
  type TaskCall,
  TaskCallSchema,
  type TaskStatus,
  TaskStatusSchema,
  WorkflowStatusSchema,
} from '../../../shared/workflow.ts';
import { ensureSchema } from '../schema.ts';
import { type NamedCall, type Plan, PlanSchema, type RunEnd } from './port.ts';

const SCHEMA = `
CREATE TABLE IF NOT EXISTS workflow (
  id INTEGER PRIMARY KEY CHECK (id = 1),
  plan TEXT NOT NULL,
  created_at TEXT NOT NULL,
  status TEXT NOT NULL,
  reason TEXT,
  finished_at TEXT,
  told TEXT
);
CREATE TABLE IF NOT EXISTS session (name TEXT PRIMARY KEY, session_id TEXT NOT NULL, is_own INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS task (name TEXT PRIMARY KEY, status TEXT NOT NULL, reason TEXT);
CREATE TABLE IF NOT EXISTS call (
  execution_id TEXT PRIMARY KEY,
  n INTEGER NOT NULL,
  task TEXT NOT NULL,
  call TEXT NOT NULL
);
`;

const HeadSchema = z.object({
  plan: z.string().transform((text) => PlanSchema.parse(JSON.parse(text))),
  created_at: z.string(),
  status: WorkflowStatusSchema,
  reason: z.string().nullable(),
  finished_at: z.string().nullable(),
  /** The status that the index of the tenant has of it. */
  told: z.string().nullable(),
});
export type WorkflowHead = z.infer<typeof HeadSchema>;

const SessionRowSchema = z.object({
  name: z.string(),
  session_id: z.string(),
  is_own: z.number().transform((number) => number === 1),
});
const TaskRowSchema = z.object({ name: z.string(), status: TaskStatusSchema, reason: z.string().nullable() });
const CallRowSchema = z.object({
  task: z.string(),
  call: z.string().transform((text) => TaskCallSchema.parse(JSON.parse(text))),
});

export class WorkflowStore {
  readonly #sql: SqlStorage;

  constructor(storage: DurableObjectStorage) {
    this.#sql = storage.sql;
    const newerColumns = [['workflow', 'told', 'TEXT']] as const;
    ensureSchema(storage, { name: 'workflow', statements: SCHEMA, newerColumns });
  }

  head(): WorkflowHead | undefined {
    const [row] = this.#sql.exec('SELECT * FROM workflow').toArray();
    return row === undefined ? undefined : HeadSchema.parse(row);
  }

  insert(plan: Plan, createdAt: string): void {
    this.#sql.exec(
      "INSERT INTO workflow (id, plan, created_at, status) VALUES (1, ?, ?, 'running')",
      JSON.stringify(plan),
      createdAt,
    );
  }

  end({ status, reason }: RunEnd, finishedAt: string): void {
    this.#sql.exec('UPDATE workflow SET status = ?, reason = ?, finished_at = ?', status, reason, finishedAt);
    this.#sql.exec("UPDATE task SET status = 'cancelled' WHERE status IN ('pending', 'running')");
  }

  told(status: WorkflowHead['status']): void {
    this.#sql.exec('UPDATE workflow SET told = ?', status);
  }

  putSession(name: string, sessionId: string, isOwn: boolean): void {
    this.#sql.exec(
      'INSERT INTO session (name, session_id, is_own) VALUES (?, ?, ?) ON CONFLICT DO NOTHING',
      name,
      sessionId,
      isOwn ? 1 : 0,
    );
  }

  sessions(): z.infer<typeof SessionRowSchema>[] {
    return this.#sql
      .exec('SELECT * FROM session')
      .toArray()
      .map((row) => SessionRowSchema.parse(row));
  }

  putTask(name: string, status: TaskStatus, reason: string | null): void {
    this.#sql.exec(
      `INSERT INTO task (name, status, reason) VALUES (?, ?, ?)
       ON CONFLICT (name) DO UPDATE SET status = excluded.status, reason = excluded.reason`,
      name,
      status,
      reason,
    );
  }

  tasks(): z.infer<typeof TaskRowSchema>[] {
    return this.#sql
      .exec('SELECT * FROM task')
      .toArray()
      .map((row) => TaskRowSchema.parse(row));
  }

  putCall({ task, ...call }: NamedCall): void {
    this.#sql.exec(
      `INSERT INTO call (execution_id, n, task, call) VALUES (?, (SELECT count(*) FROM call), ?, ?)
       ON CONFLICT (execution_id) DO UPDATE SET call = excluded.call`,
      call.execution_id,
      task,
      JSON.stringify(call),
    );
  }

  calls(): { task: string; call: TaskCall }[] {
    return this.#sql
      .exec('SELECT task, call FROM call ORDER BY n')
      .toArray()
      .map((row) => CallRowSchema.parse(row));
  }
}
