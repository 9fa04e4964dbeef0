/** The record of one repair run: the engine of Workflows goes through the attempts, this object says how they stand. */
import { DurableObject } from 'cloudflare:workers';
import * as z from 'zod';
import { failure, type Outcome, success } from '../../../shared/errors.ts';
import { isTerminal } from '../../../shared/lifecycle.ts';
import { type RepairAttempt, RepairAttemptSchema, type RepairRun } from '../../../shared/repair.ts';
import type { Env } from '../../env.ts';
import { callObject } from '../../middleware/call-object.ts';
import type { Caller } from '../caller.ts';
import { EngineRun } from '../runs/engine-run.ts';
import { RunOutbox } from '../runs/outbox.ts';
import { sessionObjectName } from '../session-name.ts';
import { addressOf, finishedEvent } from './finished.ts';
import { keptName } from './kept-name.ts';
import {
  type RepairEnd,
  RepairEndSchema,
  type RepairPlan,
  RepairPlanSchema,
  type RepairPort,
} from './port.ts';

/** How often it looks whether its run is still there. */
const LOOK_MS = 30_000;
/** Among which the one of a run is looked for. */
const NEWEST_SNAPSHOTS = 50;
/** Kept for whoever asks, after its end. */
const RETENTION_MS = 7 * 86_400_000;

const SCHEMA = `
CREATE TABLE IF NOT EXISTS run (
  id INTEGER PRIMARY KEY CHECK (id = 1),
  plan TEXT NOT NULL,
  created_at TEXT NOT NULL,
  end TEXT,
  finished_at TEXT
);
CREATE TABLE IF NOT EXISTS attempt (n INTEGER PRIMARY KEY, attempt TEXT NOT NULL);
`;

const RowSchema = z.object({
  plan: z.string().transform((text) => RepairPlanSchema.parse(JSON.parse(text))),
  created_at: z.string(),
  end: z
    .string()
    .nullable()
    .transform((text) => (text === null ? null : RepairEndSchema.parse(JSON.parse(text)))),
  finished_at: z.string().nullable(),
});
const AttemptRowSchema = z.object({
  attempt: z.string().transform((text) => RepairAttemptSchema.parse(JSON.parse(text))),
});

export class RepairObject extends DurableObject<Env> implements RepairPort {
  readonly #sql: SqlStorage;
  readonly #outbox: RunOutbox;

  constructor(ctx: DurableObjectState, env: Env) {
    super(ctx, env);
    this.#sql = ctx.storage.sql;
    this.#sql.exec(SCHEMA);
    this.#outbox = new RunOutbox(ctx.storage, env.NOTICES);
  }

  async start(plan: RepairPlan): Promise<Outcome<RepairRun>> {
    if (this.#row() === undefined) {
      this.#sql.exec(
        'INSERT INTO run (id, plan, created_at) VALUES (1, ?, ?)',
        JSON.stringify(plan),
        new Date().toISOString(),
      );
      await this.ctx.storage.setAlarm(Date.now() + LOOK_MS);
    }
    await this.#runOf(plan).begin(plan.owner.tenant);
    return this.#view();
  }

  async describe(caller: Caller): Promise<Outcome<RepairRun>> {
    return this.#isOf(caller) ? this.#view() : notFound();
  }

  async cancel(caller: Caller): Promise<Outcome<RepairRun>> {
    const row = this.#row();
    if (row === undefined || !this.#isOf(caller)) return notFound();
    if (row.end === null) {
      this.#end({ status: 'cancelled', stoppedBecause: 'cancelled', detail: 'cancelled by its owner' });
      await this.#stop(row.plan);
    }
    return this.#view();
  }

  async plan(): Promise<Outcome<RepairPlan>> {
    const row = this.#row();
    return row === undefined ? notFound() : success(row.plan);
  }

  async attempted(attempt: RepairAttempt): Promise<Outcome<boolean>> {
    this.#sql.exec(
      'INSERT INTO attempt (n, attempt) VALUES (?, ?) ON CONFLICT (n) DO UPDATE SET attempt = excluded.attempt',
      attempt.attempt,
      JSON.stringify(attempt),
    );
    const row = this.#row();
    // It began while the run was being cancelled.
    if (row !== undefined && row.end !== null) await this.#stop(row.plan);
    return success(row?.end === null);
  }

  async ended(end: RepairEnd): Promise<Outcome<null>> {
    if (this.#row()?.end === null) this.#end(end);
    return success(null);
  }

  async eventsTaken(eventIds: string[]): Promise<void> {
    this.#outbox.taken(eventIds);
  }

  /** A run that is gone without a word has failed. */
  override async alarm(): Promise<void> {
    const row = this.#row();
    if (row === undefined) return;
    if (row.end !== null) {
      await this.#forget(row);
      return;
    }
    await this.ctx.storage.setAlarm(Date.now() + LOOK_MS);
    const run = this.#runOf(row.plan);
    await run.begin(row.plan.owner.tenant);
    if ((await run.goesOn()) || this.#row()?.end !== null) return;
    this.#end({ status: 'failed', stoppedBecause: 'refused', detail: 'its run ended without saying how' });
  }

  #runOf({ repairRunId }: RepairPlan): EngineRun {
    const needsTakingUp = this.env.WORKFLOWS_NEED_TAKING_UP === 'true';
    return new EngineRun(this.env.REPAIR_RUN, { id: repairRunId, needsTakingUp });
  }

  #end(end: RepairEnd): void {
    const plan = this.#row()?.plan;
    const finishedAt = new Date().toISOString();
    this.ctx.storage.transactionSync(() => {
      this.#sql.exec('UPDATE run SET end = ?, finished_at = ?', JSON.stringify(end), finishedAt);
      const attempts = this.#attempts().length;
      if (plan !== undefined) this.#outbox.put(finishedEvent(plan, end, { attempts, finishedAt }));
    });
    void this.ctx.storage.setAlarm(Date.now() + LOOK_MS);
    if (plan === undefined) return;
    this.#runOf(plan).forget();
    this.ctx.waitUntil(this.#outbox.send(addressOf(plan)));
  }

  /** What ended is kept for a while, and told until somebody has it. */
  async #forget({ finished_at, plan }: z.infer<typeof RowSchema>): Promise<void> {
    const goneAtMs = Date.parse(finished_at ?? '') + RETENTION_MS;
    if (Date.now() >= goneAtMs) {
      await this.ctx.storage.deleteAll();
      return;
    }
    await this.#outbox.send(addressOf(plan));
    await this.ctx.storage.setAlarm(this.#outbox.isEmpty ? goneAtMs : Date.now() + LOOK_MS);
  }

  async #stop(plan: RepairPlan): Promise<void> {
    await this.#runOf(plan).stop();
    const { tenant, subject } = plan.owner;
    const name = sessionObjectName(tenant, plan.sessionId);
    for (const { execution_id, status } of this.#attempts()) {
      if (execution_id === null || isTerminal(status)) continue;
      const interrupt = () => this.env.SESSION.getByName(name).interrupt({ tenant, subject }, execution_id);
      await callObject(interrupt, { safe: true });
    }
    await this.#forgetKept(plan);
  }

  /** A run that was stopped does not come to remove what it kept. */
  async #forgetKept({ repairRunId, owner: { tenant, subject } }: RepairPlan): Promise<void> {
    const index = this.env.SNAPSHOT_INDEX.getByName(tenant);
    const listed = await index.list({ subject, limit: NEWEST_SNAPSHOTS });
    const kept = listed.ok
      ? listed.value.snapshots.find(({ name }) => name === keptName(repairRunId))
      : undefined;
    if (kept !== undefined) await index.remove(subject, kept.snapshot_id);
  }

  #row(): z.infer<typeof RowSchema> | undefined {
    const [row] = this.#sql.exec('SELECT plan, created_at, end, finished_at FROM run').toArray();
    return row === undefined ? undefined : RowSchema.parse(row);
  }

  #attempts(): RepairAttempt[] {
    const rows = this.#sql.exec('SELECT attempt FROM attempt ORDER BY n').toArray();
    return rows.map((row) => AttemptRowSchema.parse(row).attempt);
  }

  #isOf({ tenant, subject }: Caller): boolean {
    const owner = this.#row()?.plan.owner;
    return owner?.tenant === tenant && owner.subject === subject;
  }

  #view(): Outcome<RepairRun> {
    const row = this.#row();
    if (row === undefined) return notFound();
    return success({
      repair_run_id: row.plan.repairRunId,
      session_id: row.plan.sessionId,
      status: row.end?.status ?? 'running',
      stopped_because: row.end?.stoppedBecause ?? null,
      detail: row.end?.detail ?? null,
      attempts: this.#attempts(),
      created_at: row.created_at,
      finished_at: row.finished_at,
    });
  }
}

function notFound(): Outcome<never> {
  return failure('not_found', 'no such repair run, or not yours');
}
