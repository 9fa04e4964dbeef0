/** The attempts of one run, in turn. */
import * as z from 'zod';
import type { RepairAttempt, RepairStop } from '../../shared/repair.ts';
import type { RunSurroundings } from '../engine/owner.ts';
import type { Steps } from '../engine/steps.ts';
import type { RepairEnd, RepairPlan } from '../objects/repair/port.ts';
import { attemptCode, TriedSchema } from './attempt.ts';
import { type FormerAttempt, isRepairable, repetition } from './judge.ts';
import { AnsweredSchema, askModel } from './model.ts';
import type { Failed } from './prompt.ts';
import { forgetState, goBack, keepState } from './session-state.ts';

/** Beside the attempt's own time: the queue of the session, and a host that has to come back. */
const STEP_MARGIN_MS = 3_600_000;
const STATE_TIMEOUT_MS = 300_000;

export interface RepairContext {
  surroundings: RunSurroundings;
  plan: RepairPlan;
  steps: Steps;
  note: (attempt: RepairAttempt) => Promise<boolean>;
  patchOf: (before: string, after: string) => string;
}

export class Repair {
  readonly #context: RepairContext;
  readonly #former: FormerAttempt[] = [];
  readonly #failed: Failed[] = [];

  constructor(context: RepairContext) {
    this.#context = context;
  }

  async run(): Promise<RepairEnd> {
    const { steps, surroundings, plan } = this.#context;
    const keep = () => keepState(surroundings, plan);
    const snapshotId = await steps.once('keep', z.string(), keep, STATE_TIMEOUT_MS);
    try {
      return await this.#attempts(snapshotId);
    } finally {
      await steps.once('forget', z.null(), () => forgetState(surroundings, plan, snapshotId));
    }
  }

  async #attempts(snapshotId: string): Promise<RepairEnd> {
    const { request } = this.#context.plan;
    let code = request.code;
    let diff: string | null = null;
    for (let attempt = 1; ; attempt += 1) {
      const tried = await this.#attempt({ attempt, code, diff, snapshotId });
      if (tried.stop !== undefined) return tried.stop;
      if (attempt > request.max_retries) return failed('out_of_retries', tried.error);
      const answer = await this.#ask(attempt);
      if (!answer.ok) return failed('model_failed', answer.detail);
      if (answer.code === null) return failed('no_code', answer.text);
      const repeated = repetition({ code: answer.code }, this.#former);
      if (repeated !== undefined) return failed(repeated, tried.error);
      diff = this.#context.patchOf(code, answer.code);
      code = answer.code;
    }
  }

  /** One attempt; what it did is taken back where it failed. */
  async #attempt({
    attempt,
    code,
    diff,
    snapshotId,
  }: {
    attempt: number;
    code: string;
    diff: string | null;
    snapshotId: string;
  }): Promise<{ stop: RepairEnd; error: null } | { stop?: never; error: string }> {
    const { steps, plan, surroundings, note } = this.#context;
    const tried = await steps.once(
      `attempt ${attempt}`,
      TriedSchema,
      () => attemptCode({ surroundings, plan, attempt, code, note: (begun) => note({ ...begun, diff }) }),
      plan.request.timeout_ms + STEP_MARGIN_MS,
    );
    const entry: RepairAttempt = { ...tried.attempt, diff };
    if (tried.attempt.status === 'succeeded') {
      await steps.once(`note ${attempt}`, z.boolean(), () => note(entry));
      return { stop: { status: 'succeeded', stoppedBecause: 'succeeded', detail: null }, error: null };
    }
    const isOver = !isRepairable(tried.attempt);
    // A host that failed took the state with it, or keeps it as it is: nothing of that is undone by a repair.
    if (!isOver) {
      await steps.once(
        `back ${attempt}`,
        z.null(),
        () => goBack(surroundings, plan, snapshotId),
        STATE_TIMEOUT_MS,
      );
      entry.rolled_back = true;
    }
    const goesOn = await steps.once(`note ${attempt}`, z.boolean(), () => note(entry));
    const error = tried.attempt.error ?? tried.attempt.status;
    if (!goesOn)
      return { stop: { status: 'cancelled', stoppedBecause: 'cancelled', detail: null }, error: null };
    if (isOver) return { stop: failed('not_repairable', error), error: null };
    const repeated = repetition({ error }, this.#former);
    this.#former.push({ code, error });
    this.#failed.push({ code, lines: tried.lines });
    return repeated === undefined ? { error } : { stop: failed(repeated, error), error: null };
  }

  #ask(attempt: number): Promise<z.infer<typeof AnsweredSchema>> {
    const { steps, plan, surroundings } = this.#context;
    const ask = () => askModel(surroundings, plan, this.#failed);
    return steps.once(
      `model ${attempt}`,
      AnsweredSchema,
      ask,
      plan.request.model.timeout_ms + STATE_TIMEOUT_MS,
    );
  }
}

function failed(stoppedBecause: RepairStop, detail: string | null): RepairEnd {
  return { status: 'failed', stoppedBecause, detail: detail?.slice(0, 2_000) ?? null };
}
