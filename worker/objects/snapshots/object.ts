/** The snapshots of one tenant: which there are, what they take, and the end of those that nobody needs. */
import { DurableObject } from 'cloudflare:workers';
import { failure, type Outcome, success } from '../../../shared/errors.ts';
import { RESTORE_TIMEOUT_MS, SUSPEND_TIMEOUT_MS } from '../../../shared/snapshot.ts';
import type { Snapshot, SnapshotList } from '../../../shared/snapshot-resource.ts';
import type { Env } from '../../env.ts';
import { removeSome } from '../../snapshots/storage.ts';
import { earliest } from '../earliest.ts';
import { logInfo, logWarning, messageOf } from '../log.ts';
import { ringBy } from '../ring-by.ts';
import { sessionObjectName } from '../session-name.ts';
import { StorageBook } from '../storage-book.ts';
import type { NamedSnapshot, NewSnapshot, SnapshotFacts, SnapshotsPort } from './port.ts';
import { type SnapshotRow, SnapshotsStore } from './store.ts';
import { snapshotView } from './view.ts';

/** Of one tenant, the suspended sessions included. */
export const MAX_SNAPSHOTS = 500;
const MAX_STORED_BYTES = 256 * 1024 ** 3;
/** A host has given up long before, and its tokens are over. */
const STALE_AFTER_MS = 3 * SUSPEND_TIMEOUT_MS;
/** A session tells when it needs a snapshot of its own no more; where that was lost, it is asked. */
const HELD_FOR_MS = 3_600_000;
/** Tokens for its chunks are over by then: what came after its bytes were removed is removed with it. */
const SWEPT_AGAIN_AFTER_MS = STALE_AFTER_MS;
/** Sessions of a fork are made within the bounds of three restores each; who saw to that may be gone. */
const FORKED_WITHIN_MS = 4 * RESTORE_TIMEOUT_MS;
/** What was on its way to a session of a fork that failed has come by then. */
const FORK_FAILED_FOR_MS = 60_000;
const SWEEP_AT_ONCE = 8;
const SWEEP_RETRY_MS = 30_000;

export class SnapshotsObject extends DurableObject<Env> implements SnapshotsPort {
  readonly #store: SnapshotsStore;
  readonly #book: StorageBook;

  constructor(ctx: DurableObjectState, env: Env) {
    super(ctx, env);
    this.#book = new StorageBook(env);
    this.#store = new SnapshotsStore(ctx.storage);
  }

  async begin(snapshot: NewSnapshot): Promise<Outcome<null>> {
    const { count, storedBytes } = this.#store.usage();
    if (count >= MAX_SNAPSHOTS) return failure('quota_exceeded', `${count} snapshots are kept`);
    if (storedBytes >= MAX_STORED_BYTES) {
      return failure(
        'quota_exceeded',
        `snapshots take ${storedBytes} bytes, the limit is ${MAX_STORED_BYTES}`,
      );
    }
    const nowMs = Date.now();
    const { tenant, subject, snapshotId } = snapshot;
    this.#store.add(snapshot, nowMs);
    await ringBy(this.ctx.storage, nowMs + STALE_AFTER_MS);
    // How large it gets nobody knows before: it begins while something is left.
    const held = await this.#book.hold(tenant, { id: holdId(snapshotId), subject, bytes: 1 });
    if (held.ok) this.#store.markTold(snapshotId, 1);
    else this.#store.delete(snapshotId);
    return held;
  }

  async complete(facts: SnapshotFacts): Promise<void> {
    const dueAtMs = Date.now() + HELD_FOR_MS;
    this.#store.complete(facts, dueAtMs);
    await ringBy(this.ctx.storage, (await this.#tellTenant()) ? dueAtMs : Date.now() + SWEEP_RETRY_MS);
  }

  async find(subject: string, snapshotId: string): Promise<Outcome<NamedSnapshot>> {
    const row = this.#store.named(subject, snapshotId);
    if (row?.facts === undefined || row.facts === null) return notFound();
    return success({ name: row.name, createdAtMs: row.created_at, facts: row.facts });
  }

  async list(input: {
    subject: string;
    cursor?: string | undefined;
    limit: number;
  }): Promise<Outcome<SnapshotList>> {
    const position = input.cursor === undefined ? BEGINNING : parseCursor(input.cursor);
    if (position === undefined) {
      return failure('invalid_request', 'the cursor is not one of this list', {
        violations: [{ path: 'query.cursor', expected: 'next_cursor of a former answer' }],
      });
    }
    const found = this.#store.list(input.subject, position, input.limit + 1);
    const shown = found.slice(0, input.limit);
    const last = shown.at(-1);
    return success({
      snapshots: shown.flatMap(viewOf),
      next_cursor:
        found.length > shown.length && last !== undefined ? `${last.created_at}:${last.snapshot_id}` : null,
    });
  }

  async remove(subject: string, snapshotId: string): Promise<Outcome<null>> {
    const row = this.#store.named(subject, snapshotId);
    if (row === undefined) return notFound();
    if (await this.#session(row).holds(snapshotId)) {
      const detail =
        'its session was taken back to the snapshot and has not left it; resume or delete the session';
      return failure('session_not_running', detail, { retry_after_s: 1 });
    }
    this.#store.markRemoved(snapshotId);
    await ringBy(this.ctx.storage, Date.now());
    return success(null);
  }

  async beginFork({
    snapshotId,
    children,
  }: {
    snapshotId: string;
    children: string[];
  }): Promise<Outcome<null>> {
    const dueAtMs = Date.now() + FORKED_WITHIN_MS;
    if (!this.#store.setForking(snapshotId, { children, dueAtMs })) return notFound();
    await ringBy(this.ctx.storage, dueAtMs);
    return success(null);
  }

  async endFork({ snapshotId, isWhole }: { snapshotId: string; isWhole: boolean }): Promise<Outcome<null>> {
    const nowMs = Date.now();
    const dueAtMs = nowMs + FORK_FAILED_FOR_MS;
    const isThere = isWhole
      ? this.#store.setForked(snapshotId, nowMs)
      : this.#store.setForkFailed(snapshotId, dueAtMs);
    if (!isThere) return failure('storage_unavailable', 'the fork took too long, and was given up');
    await ringBy(this.ctx.storage, isWhole ? nowMs : dueAtMs);
    return success(null);
  }

  async release(snapshot: { sessionId: string; snapshotId: string }): Promise<void> {
    this.#store.markReleased(snapshot);
    await ringBy(this.ctx.storage, Date.now());
  }

  override async alarm(): Promise<void> {
    const nowMs = Date.now();
    await this.ctx.storage.setAlarm(nowMs + SWEEP_RETRY_MS);
    for (const row of this.#store.stale(nowMs - STALE_AFTER_MS, nowMs, SWEEP_AT_ONCE)) await this.#judge(row);
    for (const place of this.#store.removed(SWEEP_AT_ONCE)) {
      if (await removeSome(this.env.SNAPSHOTS, place))
        this.#store.markSwept(place.snapshotId, nowMs + SWEPT_AGAIN_AFTER_MS);
    }
    for (const place of this.#store.sweptDue(nowMs, SWEEP_AT_ONCE)) {
      if (await removeSome(this.env.SNAPSHOTS, place)) this.#store.delete(place.snapshotId);
    }
    const isTold = await this.#tellTenant();
    if (this.#store.removed(1).length > 0) return this.ctx.storage.setAlarm(Date.now());
    const nextMs = isTold ? this.#nextMs() : nowMs;
    if (nextMs === null) await this.ctx.storage.deleteAlarm();
    else await this.ctx.storage.setAlarm(Math.max(nextMs, nowMs + SWEEP_RETRY_MS));
  }

  #tellTenant(): Promise<boolean> {
    return this.#book.tell(this.#store, holdId, SWEEP_AT_ONCE);
  }

  #nextMs(): number | null {
    const oldestMs = this.#store.oldestUnfinishedMs();
    const moments = [oldestMs === null ? null : oldestMs + STALE_AFTER_MS, this.#store.nextDueMs()];
    return earliest(moments);
  }

  /** A session that holds it says so: its word may not have come here. */
  async #judge(row: SnapshotRow): Promise<void> {
    const { snapshot_id: snapshotId, kind } = row;
    try {
      for (const child of row.children ?? []) await this.#endChild(row, child);
      const isOfSession = kind === 'suspension' || kind === 'restore_point';
      const facts = isOfSession ? await this.#session(row).keeps(snapshotId) : null;
      if (facts === null) this.#store.markRemoved(snapshotId);
      else this.#store.complete(facts, Date.now() + HELD_FOR_MS);
    } catch (error: unknown) {
      logWarning('stale_snapshot_not_judged', { snapshot_id: snapshotId, detail: messageOf(error) });
    }
  }

  /** Nobody was told of it. One that never came to be is none. */
  async #endChild({ tenant, subject }: SnapshotRow, sessionId: string): Promise<void> {
    const ended = await this.#session({ tenant, session_id: sessionId }).destroy({ tenant, subject });
    if (ended.ok) logInfo('forked_session_ended', { session_id: sessionId });
    else if (ended.code !== 'not_found') throw new Error(ended.detail);
  }

  #session({ tenant, session_id: sessionId }: Pick<SnapshotRow, 'tenant' | 'session_id'>) {
    return this.env.SESSION.getByName(sessionObjectName(tenant, sessionId));
  }
}

function holdId(snapshotId: string): string {
  return `snapshot:${snapshotId}`;
}

const BEGINNING = { createdAtMs: Number.MAX_SAFE_INTEGER, snapshotId: '' };

function parseCursor(cursor: string): typeof BEGINNING | undefined {
  const match = /^(\d{1,15}):(snp_[A-Za-z0-9_-]{22})$/.exec(cursor);
  return match?.[2] === undefined ? undefined : { createdAtMs: Number(match[1]), snapshotId: match[2] };
}

function viewOf({ name, created_at, facts }: SnapshotRow): Snapshot[] {
  return facts === null ? [] : [snapshotView(facts, { name, createdAtMs: created_at })];
}

function notFound(): Outcome<never> {
  return failure('not_found', 'no such snapshot, or not yours');
}
