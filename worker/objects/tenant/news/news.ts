/**
 * Tells the sessions of a tenant that its limits or webhooks are others now: a walk over all that hold a host, a hundred
 * a message of the queue. Suspended ones ask when they wake.
 */
import { logWarning, messageOf } from '../../log.ts';
import type { NewsStore, Walk } from './store.ts';

/** One call of the queue takes so many: about half of the bytes that it may have. */
const SESSIONS_A_STEP = 1_000;
/** Whoever changes things all the time tells only every so often: a walk wakes every session. */
export const WALK_EVERY_MS = 20_000;

export interface NewsPort<Session extends { sessionId: string }> {
  /** Those after this one, in the order of their ids. */
  sessionsAfter(sessionId: string | null, limit: number): Session[];
  tell(tenant: string, sessions: readonly Session[]): Promise<unknown>;
}

export class News<Session extends { sessionId: string }> {
  readonly #store: NewsStore;
  readonly #port: NewsPort<Session>;

  constructor(store: NewsStore, port: NewsPort<Session>) {
    this.#store = store;
    this.#port = port;
  }

  /** When the alarm has to go on; null where there is nothing to tell. */
  get dueAtMs(): number | null {
    return this.#store.load()?.due_at ?? null;
  }

  /** There is something to tell. Belongs to the write of it. */
  changed(tenant: string, nowMs: number): void {
    const walk = this.#store.load();
    if (walk === undefined || walk.due_at === null) {
      const due_at = Math.max(nowMs, (walk?.began_at ?? 0) + WALK_EVERY_MS);
      this.#store.save({ tenant, due_at, began_at: walk?.began_at ?? 0, after_id: null, is_again: false });
    } else if (walk.after_id !== null) {
      this.#store.save({ ...walk, is_again: true });
    }
  }

  /** From the alarm. */
  async goOn(nowMs: number): Promise<void> {
    for (let walk = this.#store.load(); walk !== undefined; walk = this.#store.load()) {
      if (walk.due_at === null || walk.due_at > nowMs) return;
      const sessions = this.#port.sessionsAfter(walk.after_id, SESSIONS_A_STEP);
      // Before they are told: news that comes meanwhile is for them too.
      this.#store.save(after(walk, sessions, nowMs));
      try {
        if (sessions.length > 0) await this.#port.tell(walk.tenant, sessions);
      } catch (error: unknown) {
        logWarning('news_not_told', { detail: messageOf(error) });
        // From the beginning: there may be other news by now.
        this.#store.save({ ...walk, due_at: nowMs + WALK_EVERY_MS, after_id: null, is_again: false });
      }
    }
  }
}

function after(walk: Walk, sessions: readonly { sessionId: string }[], nowMs: number): Walk {
  const began_at = walk.after_id === null ? nowMs : walk.began_at;
  const last = sessions.length < SESSIONS_A_STEP ? undefined : sessions.at(-1);
  if (last !== undefined) return { ...walk, began_at, after_id: last.sessionId };
  const due_at = walk.is_again ? began_at + WALK_EVERY_MS : null;
  return { ...walk, began_at, due_at, after_id: null, is_again: false };
}
