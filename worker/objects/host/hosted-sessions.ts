/** The sessions of one host, told what becomes of it. One that fails does not hold the others. */
import { isSessionIdOf } from '../../../shared/ids.ts';
import { configurationOf } from '../../configuration.ts';
import type { Env } from '../../env.ts';
import { logWarning, messageOf } from '../log.ts';
import { sessionObjectName } from '../session-name.ts';
import type { HostStore, SessionRow } from './store.ts';

/** Sessions that leave a draining host, in all and side by side: each takes what its host and the storage can do. */
const MAX_MOVED = 10_000;
const MOVED_AT_ONCE = 4;
const NOTICES_AT_ONCE = 16;

export interface LossTold {
  /** Whether some are to be told still … */
  isLeft: boolean;
  /** … and can be at once: the others did not answer. */
  isMoreAtOnce: boolean;
}

export class HostedSessions {
  readonly #store: HostStore;
  readonly #env: Env;
  #toldUpTo: SessionRow | undefined;

  constructor(store: HostStore, env: Env) {
    this.#store = store;
    this.#env = env;
  }

  of(named: { tenant: string; session_id: string }) {
    return this.#env.SESSION.getByName(sessionObjectName(named.tenant, named.session_id));
  }

  /** No object wakes because a host invents a session. */
  async has(named: { tenant: string; session_id: string }): Promise<boolean> {
    const { tagKey } = await configurationOf(this.#env);
    return isSessionIdOf(tagKey, named.tenant, named.session_id);
  }

  /** For as long as the host drains. */
  async move(): Promise<void> {
    const hostId = this.#store.host()?.host_id;
    if (hostId === undefined) return;
    const rows = this.#store.sessions(MAX_MOVED);
    const moveSome = async (): Promise<void> => {
      for (let row = rows.shift(); row !== undefined; row = rows.shift()) {
        if (!this.#store.isDraining() && !this.#store.isDrainingItself()) return;
        try {
          await this.of(row).hostDraining({ hostId });
        } catch (error: unknown) {
          logWarning('session_not_moved', { session_id: row.session_id, detail: messageOf(error) });
        }
      }
    };
    await Promise.all(Array.from({ length: MOVED_AT_ONCE }, moveSome));
  }

  /** Tells some of them that their host is dead: those that did not answer come again when all the others were told. */
  async tellLoss(hostId: string): Promise<LossTold> {
    const rows = this.#store.sessions(NOTICES_AT_ONCE, this.#toldUpTo);
    this.#toldUpTo = rows.at(-1);
    await Promise.all(rows.map((row) => this.#tellLoss(hostId, row)));
    const isMoreAtOnce = rows.length === NOTICES_AT_ONCE;
    return { isLeft: isMoreAtOnce || this.#store.sessions(1).length > 0, isMoreAtOnce };
  }

  async #tellLoss(hostId: string, row: SessionRow): Promise<void> {
    try {
      await this.of(row).hostLost({ hostId, isRevoked: this.#store.revokedAtMs !== null });
      this.#store.removeSession(row);
    } catch (error: unknown) {
      logWarning('host_lost_notice_failed', { session_id: row.session_id, detail: messageOf(error) });
    }
  }
}
