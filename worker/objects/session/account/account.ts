/**
 * The session's side of its tenant's limits. A tenant without limits is only told now and then what was used; of one with
 * limits each call is admitted before it is taken in. CPU time that was reserved and not used serves the next call.
 */
import { type Outcome, success } from '../../../../shared/errors.ts';
import type { Receipt } from '../../../../shared/receipt.ts';
import {
  type AccountTerms,
  REPORT_AFTER_MS,
  type SessionAccount,
  type Wanted,
} from '../../tenant/ledger/account.ts';
import type { AccountBook, AccountStore } from './store.ts';

/** How long CPU time that is reserved and not used stays with the session. */
const SETTLE_AFTER_MS = 5_000;
/** How long what is limited is taken to be as it was: longer than until the next report, which brings the terms too. */
const TERMS_LIVE_MS = 45_000;
const TERMS_LIVE_REPORTS = 1.5;

export interface AccountPort {
  /** Null before the session exists. */
  facts(): { sessionId: string; subject: string; cpus: number } | null;
  /** Milliseconds that each open execution may take. */
  openTimeoutsMs(): number[];
  storageBytes(): number;
  /** Whether the session is in a snapshot. */
  isSuspended(): boolean;
  tell(account: SessionAccount, wanted: Wanted | null): Promise<Outcome<AccountTerms>>;
  /** Work that nobody waits for. */
  inBackground(work: Promise<unknown>): void;
  /** The alarm has to ring by then. */
  dueAt(atMs: number): void;
  /** What the tenant says, whenever it says something. */
  heard(terms: AccountTerms): void;
}

export interface AdmittedCall {
  /** The call was taken in, or was not after all. */
  settled(isTaken: boolean): void;
}

const NOTHING_USED: AccountBook = {
  executions: 0,
  cpuMs: 0,
  egressBytes: 0,
  outputBytes: 0,
  dueAtMs: null,
  limited: false,
  counted: false,
  termsAtMs: 0,
  revision: 0,
  reportAfterMs: REPORT_AFTER_MS,
};

export class Account {
  readonly #store: AccountStore;
  readonly #port: AccountPort;
  /** By idempotency key. */
  readonly #admitting = new Map<string, Promise<unknown>>();
  /** Of a session whose row is of a former version nothing is known of its terms. */
  #book: AccountBook;
  #isKnown: boolean;
  /** Asked for and not heard yet. */
  #askedAtMs = 0;
  #lastN = 0;
  #reservedCpuMs = 0;
  /** Grows with everything that the tenant has to hear of. */
  #changes = 0;
  /** CPU time of calls that are admitted and not yet taken in. */
  #pending: number[] = [];
  #turns: Promise<unknown> = Promise.resolve();
  /** The session is in a snapshot, and holds a place all the same: it is about to hold a host. */
  #isComingBack = false;

  constructor(store: AccountStore, port: AccountPort) {
    this.#store = store;
    this.#port = port;
    const book = store.load();
    this.#isKnown = book !== undefined;
    this.#book = book ?? NOTHING_USED;
  }

  get dueAtMs(): number | null {
    return this.#book.dueAtMs;
  }

  /** What the tenant says, as it notes the session, or because it is something else now. */
  hear(terms: AccountTerms): void {
    this.#take(terms);
  }

  /** Whether a call may be taken in. Null where nothing has to be asked: then nothing is waited for. */
  admission(timeoutMs: number, key: string | null): Promise<Outcome<AdmittedCall>> | null {
    const facts = this.#port.facts();
    if (facts === null) return null;
    if (this.#isKnown && !this.#book.limited) {
      const { termsAtMs, reportAfterMs } = this.#book;
      const liveMs = Math.max(TERMS_LIVE_MS, TERMS_LIVE_REPORTS * reportAfterMs);
      if (Date.now() - Math.max(termsAtMs, this.#askedAtMs) > liveMs) {
        this.#askedAtMs = Date.now();
        this.#port.inBackground(this.#inTurn(() => this.#tell(null)));
      }
      return null;
    }
    const admitted = this.#inTurn(() => this.#admit(timeoutMs * facts.cpus, key));
    if (key !== null) this.#admitting.set(key, admitted);
    return admitted;
  }

  /** The admission of an earlier call with this key, while it is under way. */
  admitting(key: string): Promise<unknown> | undefined {
    return this.#admitting.get(key);
  }

  /** An execution ended, or what its host has signed came late. `usage` is what was signed. */
  settle(usage: Receipt['usage'] | undefined, executions: 0 | 1): void {
    const cpuMs = Math.ceil(usage?.cpu_ms ?? 0);
    this.#reservedCpuMs = Math.max(0, this.#reservedCpuMs - cpuMs);
    const book = this.#book;
    this.#schedule({
      ...book,
      executions: book.executions + executions,
      cpuMs: book.cpuMs + cpuMs,
      egressBytes: book.egressBytes + (usage?.egress_bytes ?? 0),
      outputBytes: book.outputBytes + (usage?.output_bytes ?? 0),
    });
  }

  /**
   * The session has moved, be it into a snapshot or out of one. In one it gives its place among the tenant's sessions
   * back, unless it is to leave it at once.
   */
  moved(isComingBack: boolean): void {
    this.#isComingBack = isComingBack && this.#port.isSuspended();
    if (!this.#port.isSuspended()) return;
    this.#tellBy(isComingBack ? REPORT_AFTER_MS : 0);
  }

  /** A place for a suspended session, before it asks for a host. */
  takePlace(): Promise<Outcome<null>> {
    return this.#inTurn(async () => {
      if (this.#isComingBack || !this.#port.isSuspended()) return success(null);
      // An eviction may come before the session has moved: then the tenant hears that it has not.
      this.#tellBy(REPORT_AFTER_MS);
      const told = await this.#tell({ place: true });
      if (!told.ok) return told;
      this.#isComingBack = true;
      this.#tellBy(REPORT_AFTER_MS);
      return success(null);
    });
  }

  /** The session stays in its snapshot after all. */
  giveBackPlace(): void {
    if (!this.#isComingBack || !this.#port.isSuspended()) return;
    this.#isComingBack = false;
    this.#tellBy(0);
  }

  /** From the alarm. */
  async report(): Promise<void> {
    if (this.#book.dueAtMs === null || this.#port.facts() === null) return;
    await this.#inTurn(() => this.#tell(null));
  }

  /** How the session stands, for the last time. */
  close(): SessionAccount | null {
    const facts = this.#port.facts();
    if (facts === null) return null;
    if (this.#book.dueAtMs !== null) this.#save({ ...this.#book, dueAtMs: null });
    return this.#statement(facts);
  }

  async #admit(cpuMs: number, key: string | null): Promise<Outcome<AdmittedCall>> {
    const isFresh = this.#isKnown && Date.now() - this.#book.termsAtMs < TERMS_LIVE_MS;
    const isCovered = !this.#book.limited || this.#reservedCpuMs - this.#committedCpuMs() >= cpuMs;
    if (!isFresh || this.#book.counted || !isCovered) {
      let told: Outcome<AccountTerms> | undefined;
      try {
        told = await this.#tell({ cpuMs });
      } finally {
        if (key !== null && told?.ok !== true) this.#admitting.delete(key);
      }
      if (!told.ok) return told;
      this.#reservedCpuMs += cpuMs;
    }
    this.#pending.push(cpuMs);
    return success({
      settled: (isTaken) => {
        this.#pending.splice(this.#pending.indexOf(cpuMs), 1);
        if (key !== null) this.#admitting.delete(key);
        // What its twin was taken in for is given back.
        if (!isTaken) this.#schedule(this.#book);
      },
    });
  }

  #committedCpuMs(): number {
    const { cpus } = this.#port.facts() ?? { cpus: 0 };
    const open = this.#port.openTimeoutsMs().reduce((sum, timeoutMs) => sum + timeoutMs * cpus, 0);
    return open + this.#pending.reduce((sum, cpuMs) => sum + cpuMs, 0);
  }

  /** What stands now; what is reserved beyond what is committed goes back with it. */
  async #tell(wanted: Wanted | null): Promise<Outcome<AccountTerms>> {
    const facts = this.#port.facts();
    if (facts === null)
      return success({
        limited: false,
        counted: false,
        reportAfterMs: REPORT_AFTER_MS,
        webhooksSinceMs: null,
        revision: 0,
      });
    const { dueAtMs } = this.#book;
    const changes = this.#changes;
    this.#reservedCpuMs = this.#book.limited || wanted !== null ? this.#committedCpuMs() : 0;
    const told = await this.#port.tell(this.#statement(facts), wanted);
    if (told.ok) this.#take(told.value);
    const book = this.#book;
    if (book.dueAtMs === null || book.dueAtMs !== dueAtMs) return told;
    const isHeard = told.ok || told.limit !== undefined;
    if (isHeard && this.#changes === changes) this.#save({ ...book, dueAtMs: null });
    else if (!isHeard) this.#save({ ...book, dueAtMs: Date.now() + book.reportAfterMs });
    return told;
  }

  #statement({ sessionId, subject }: { sessionId: string; subject: string }): SessionAccount {
    this.#lastN = Math.max(this.#lastN + 1, Date.now() * 1_000);
    const { executions, cpuMs, egressBytes, outputBytes } = this.#book;
    return {
      sessionId,
      subject,
      n: this.#lastN,
      open: this.#port.openTimeoutsMs().length + this.#pending.length,
      reservedCpuMs: this.#reservedCpuMs,
      storageBytes: this.#port.storageBytes(),
      suspended: this.#port.isSuspended() && !this.#isComingBack,
      used: { executions, cpuMs, egressBytes, outputBytes },
    };
  }

  #take(terms: AccountTerms): void {
    const { limited, counted, reportAfterMs, revision } = terms;
    if (revision < this.#book.revision) return;
    this.#port.heard(terms);
    this.#isKnown = true;
    this.#save({ ...this.#book, limited, counted, reportAfterMs, revision, termsAtMs: Date.now() });
  }

  /** Where executions are counted, the tenant hears at once that there is one less. */
  #schedule(book: AccountBook): void {
    this.#tellBy(book.counted ? 0 : book.limited ? SETTLE_AFTER_MS : book.reportAfterMs, book);
  }

  /** Now is at once; the alarm sees to it that it is told whatever becomes of that. */
  #tellBy(afterMs: number, book = this.#book): void {
    this.#changes += 1;
    const atMs = Math.min(book.dueAtMs ?? Number.POSITIVE_INFINITY, Date.now() + afterMs);
    this.#save({ ...book, dueAtMs: atMs });
    if (afterMs === 0) this.#port.inBackground(this.report());
    else this.#port.dueAt(atMs);
  }

  #save(book: AccountBook): void {
    this.#book = book;
    this.#store.save(book);
  }

  #inTurn<T>(work: () => Promise<T>): Promise<T> {
    const turn = this.#turns.then(work);
    this.#turns = turn.catch(() => undefined);
    return turn;
  }
}
