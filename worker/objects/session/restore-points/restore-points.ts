/** The states that a session may be taken back to: a snapshot before each execution that asks for it, the latest few. */
import type { Failure } from '../../../../shared/errors.ts';
import type { TerminalStatus } from '../../../../shared/lifecycle.ts';
import type { ExecutionRecord } from '../rows/records.ts';
import type { SessionRow } from '../rows/session-row.ts';
import type { Suspension } from '../suspension/suspension.ts';
import { type PointSnapshot, type RestorePoint, RestorePointStore } from './store.ts';

export const MAX_RESTORE_POINTS = 4;
/** Of one session, as stored; the newest is kept whatever its size. */
const MAX_STORED_BYTES = 8 * 1024 ** 3;

/** What was stopped by request, or whose end was not seen, stays as it is. */
const TAKEN_BACK: ReadonlySet<TerminalStatus> = new Set(['failed', 'timeout', 'oom', 'crashed']);

export interface RestorePointsParts {
  context: DurableObjectState;
  row: SessionRow;
  suspension: Suspension;
  /** Whether there is no sandbox now to make a snapshot of, but soon is. */
  mayWait: () => boolean;
  /** The execution is not run without its snapshot. */
  refuse: (record: ExecutionRecord, why: Failure) => void;
}

export class RestorePoints {
  readonly #parts: RestorePointsParts;
  readonly #store: RestorePointStore;

  constructor(parts: RestorePointsParts) {
    this.#parts = parts;
    this.#store = new RestorePointStore(parts.context);
  }

  /** Before the execution is sent; false where it is not sent now. */
  async secure(record: ExecutionRecord): Promise<boolean> {
    // One whose sandbox was lost before it began goes back to where the session was before that.
    if (!record.rollback || this.before(record) !== undefined) return true;
    const made = await this.#make();
    if (!made.ok) {
      if (!this.#parts.mayWait()) this.#parts.refuse(record, made);
      return false;
    }
    const { snapshotId, manifestSha256, requirements, generation, bytes, storedBytes, shell } = made.value;
    this.#store.insert(record.n, {
      snapshotId,
      manifestSha256,
      requirements,
      generation,
      bytes,
      storedBytes,
      shell,
    });
    this.#prune();
    return true;
  }

  /** Where the tenant has no room for one more, those that this session has give way. */
  async #make() {
    const { suspension } = this.#parts;
    for (;;) {
      const made = await suspension.snapshot({ kind: 'restore_point', name: '' });
      const oldest = this.#releasable()[0];
      if (made.ok || made.code !== 'quota_exceeded' || oldest === undefined) return made;
      await this.#release(oldest);
    }
  }

  /** The state before the execution, where it is kept. */
  before({ n }: Pick<ExecutionRecord, 'n'>): PointSnapshot | undefined {
    return this.#store.all().find((point) => point.n === n)?.snapshot;
  }

  find(snapshotId: string): PointSnapshot | undefined {
    return this.#store.all().find(({ snapshot }) => snapshot.snapshotId === snapshotId)?.snapshot;
  }

  /** Whether an execution that ends so is taken back. */
  isTakenBack(record: ExecutionRecord, status: TerminalStatus): boolean {
    return record.rollback && TAKEN_BACK.has(status) && this.before(record) !== undefined;
  }

  /** The session ends. */
  releaseAll(): void {
    for (const point of this.#store.all()) void this.#release(point);
  }

  #prune(): void {
    const points = this.#releasable().slice(0, -1);
    let count = this.#store.all().length;
    let storedBytes = this.#store.all().reduce((sum, { snapshot }) => sum + snapshot.storedBytes, 0);
    for (const point of points) {
      if (count <= MAX_RESTORE_POINTS && storedBytes <= MAX_STORED_BYTES) return;
      count -= 1;
      storedBytes -= point.snapshot.storedBytes;
      void this.#release(point);
    }
  }

  /** Oldest first; never the one that the session is in. */
  #releasable(): RestorePoint[] {
    const held = this.#parts.row.record.snapshot?.snapshotId;
    return this.#store.all().filter(({ snapshot }) => snapshot.snapshotId !== held);
  }

  async #release({ n, snapshot }: RestorePoint): Promise<void> {
    this.#store.delete(n);
    await this.#parts.suspension.records.release(snapshot.snapshotId);
  }
}
