/** The sessions of a run: made when a task first needs one, and ended with the run. */
import * as z from 'zod';
import { failure } from '../../shared/errors.ts';
import { newSessionId, SessionIdSchema } from '../../shared/ids.ts';
import { MAX_IDLE_TIMEOUT_S } from '../../shared/limits.ts';
import { CreateSessionSchema } from '../../shared/session.ts';
import type { WorkflowSession } from '../../shared/workflow.ts';
import { placeAndCreate } from '../calls/create-session.ts';
import { ownSession, sessionOf } from '../calls/own-session.ts';
import { ownersExchange } from '../engine/owner.ts';
import { Refusal, unwrap } from '../middleware/refusal.ts';
import { SAFE } from '../objects/object-calls.ts';
import type { RunContext } from './run-context.ts';

/** Placing asks up to three hosts, each of which may have to boot a sandbox. */
const CREATE_TIMEOUT_MS = 300_000;

export class RunSessions {
  readonly #context: RunContext;
  readonly #ids = new Map<string, Promise<string>>();
  readonly #own: string[] = [];

  constructor(context: RunContext) {
    this.#context = context;
  }

  idOf(name: string): Promise<string> {
    const known = this.#ids.get(name);
    if (known !== undefined) return known;
    const asked: WorkflowSession = this.#context.plan.definition.sessions[name] ?? {
      create: CreateSessionSchema.parse({}),
    };
    const making = 'session_id' in asked ? this.#given(name, asked.session_id) : this.#made(name, asked);
    this.#ids.set(name, making);
    return making;
  }

  async #given(name: string, sessionId: string): Promise<string> {
    const { steps, record } = this.#context;
    return steps.once(`session ${name}`, SessionIdSchema, async () => {
      const session = await ownSession(ownersExchange(this.#context, this.#context.plan.owner), sessionId);
      unwrap(await session.call((stub) => stub.describe(session.caller), SAFE));
      await record((stub) => stub.sessionNamed(name, sessionId, false));
      return sessionId;
    });
  }

  async #made(name: string, { create }: Extract<WorkflowSession, { create: unknown }>): Promise<string> {
    const { steps, record, plan, configuration } = this.#context;
    const { tenant } = plan.owner;
    // The id first: a create that is made again joins the session that the first one made.
    const sessionId = await steps.once(`session ${name} id`, SessionIdSchema, () =>
      newSessionId(configuration.tagKey, tenant),
    );
    this.#own.push(sessionId);
    await steps.once(
      `session ${name}`,
      z.null(),
      async () => {
        await record((stub) => stub.sessionNamed(name, sessionId, true));
        const request = {
          ...create,
          metadata: { workflow_id: plan.workflowId },
          idle_timeout_s: MAX_IDLE_TIMEOUT_S,
        };
        unwrap(
          await placeAndCreate(ownersExchange(this.#context, this.#context.plan.owner), {
            sessionId,
            fresh: false,
            request,
            ephemeral: false,
          }),
        );
        return null;
      },
      CREATE_TIMEOUT_MS,
    );
    return sessionId;
  }

  /** Ends those that were made for the run. */
  async end(): Promise<void> {
    const { steps } = this.#context;
    for (const sessionId of this.#own) {
      await steps.once(`end ${sessionId}`, z.null(), async () => {
        const session = sessionOf(ownersExchange(this.#context, this.#context.plan.owner), sessionId);
        const ended = await session.call((stub) => stub.destroy(session.caller), SAFE);
        if (!ended.ok && ended.code !== 'not_found') throw new Refusal(failure(ended.code, ended.detail));
        return null;
      });
    }
  }
}
