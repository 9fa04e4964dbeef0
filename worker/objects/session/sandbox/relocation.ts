/** Another host for a session whose sandbox is gone: then nothing of it is bound to the host where it was. */
import { type Outcome, success } from '../../../../shared/errors.ts';
import type { Env } from '../../../env.ts';
import { logInfo, logWarning, messageOf } from '../../log.ts';
import type { SessionRow } from '../rows/session-row.ts';
import type { SessionStore } from '../rows/store.ts';

/** Hosts that are asked for one sandbox, the session's own included. */
const MAX_HOSTS_TRIED = 3;

export class Relocation {
  readonly #row: SessionRow;
  readonly #store: SessionStore;
  readonly #env: Env;
  readonly #tried = new Set<string>();

  constructor(row: SessionRow, store: SessionStore, env: Env) {
    this.#row = row;
    this.#store = store;
    this.#env = env;
  }

  /** Gives the session another host of its pool; `false` where there is none for it, or enough were tried. */
  async move(): Promise<boolean> {
    const { facts, hostKeyX } = this.#row.record;
    this.#tried.add(facts.hostId);
    if (this.#tried.size >= MAX_HOSTS_TRIED) return false;
    const placed = await this.#place();
    if (!placed.ok || !this.#row.isLive) return false;
    // Receipts of the former host stay in the chain, and are verified with its key.
    if (hostKeyX !== null) this.#store.addFormerHost(facts.hostId, hostKeyX);
    const { hostId } = placed.value;
    this.#row.patch({ facts: { ...this.#row.record.facts, hostId }, hostKeyX: null });
    logInfo('session_moved', { session_id: facts.sessionId, host_id: hostId });
    this.#forgetAt(facts.hostId);
    return true;
  }

  /** There is a sandbox, or the call was given up: the next one may ask every host again. */
  settled(): void {
    if (this.#tried.size === 0) return;
    this.#tried.clear();
    const { sessionId } = this.#row.record.facts;
    this.#pool().placed({ sessionId }).catch(unheard);
  }

  async #place(): Promise<Outcome<{ hostId: string }>> {
    const { imageDigest, sessionId } = this.#row.record.facts;
    const placed = await this.#pool().place({ image: imageDigest, sessionId, except: [...this.#tried] });
    return placed.ok ? success({ hostId: placed.value.hostId }) : placed;
  }

  #forgetAt(hostId: string): void {
    const { tenant, sessionId } = this.#row.record.facts;
    this.#env.HOST.getByName(hostId).forget({ tenant, sessionId }).catch(unheard);
  }

  #pool() {
    return this.#env.POOL.getByName(this.#row.record.facts.pool);
  }
}

function unheard(error: unknown): void {
  logWarning('relocation_not_told', { detail: messageOf(error) });
}
