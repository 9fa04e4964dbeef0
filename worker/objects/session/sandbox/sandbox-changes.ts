/** What follows for the parts of a session when its sandbox is there, or is gone. */
import { failure } from '../../../../shared/errors.ts';
import { logWarning, messageOf } from '../../log.ts';
import type { UnresponsiveLanes } from '../executions/unresponsive-lanes.ts';
import type { LinkChanges } from '../link/link-changes.ts';
import type { ForkedProgram } from '../programs/forked.ts';
import { type ExecutionRecord, isToBeSent } from '../rows/records.ts';
import type { SessionParts } from '../session-parts.ts';
import type { HeldSnapshot } from '../suspension/held-snapshot.ts';
import { SANDBOX_GONE } from '../suspension/suspension.ts';
import type { LostReason } from './sandbox.ts';

/** Sandboxes that may be lost under one execution before it starts. */
const MAX_SANDBOXES_TRIED = 3;
/** The guest's own end: the same would come of the same state. */
const OF_GUEST: ReadonlySet<LostReason> = new Set(['oom', 'crashed']);

export class SandboxChanges {
  readonly #parts: SessionParts;
  readonly #links: LinkChanges;
  readonly #lanes: UnresponsiveLanes;
  readonly #rebuild: (reason: LostReason) => Promise<void>;
  #expected: readonly ForkedProgram[] = [];
  #rebuilding: Promise<void> | undefined;

  constructor(
    parts: SessionParts,
    {
      links,
      lanes,
      rebuild,
    }: { links: LinkChanges; lanes: UnresponsiveLanes; rebuild: (reason: LostReason) => Promise<void> },
  ) {
    this.#parts = parts;
    this.#links = links;
    this.#lanes = lanes;
    this.#rebuild = rebuild;
  }

  /** Programs that go on in this session once its first sandbox is there. */
  expect(programs: readonly ForkedProgram[]): void {
    this.#expected = programs;
  }

  ready(): void {
    const { row, waking, transfers, dispatch } = this.#parts;
    const { sandbox, snapshot } = row.record;
    if (sandbox === 'ready') this.#links.sandboxLives();
    if (sandbox === 'ready' && snapshot !== null) {
      waking.restored();
      this.#inherit(snapshot);
    }
    this.#parts.look();
    transfers.usable();
    void dispatch.pump();
  }

  #inherit({ forks }: HeldSnapshot): void {
    const { sandbox, programs, executions } = this.#parts;
    const grant = sandbox.attachGrant;
    for (const program of this.#expected) {
      const fork = forks.find(({ execution_id: id }) => id === program.executionId);
      if (fork === undefined || grant === undefined) continue;
      programs.inherit(executions.inherit(program, fork.as, grant), program);
    }
    this.#expected = [];
  }

  /** The host says that the sandbox is gone; all that it had to say of executions it has said before. */
  lost(reason: LostReason): void {
    const { row, sandbox, executions } = this.#parts;
    this.#links.lossKnown();
    if (!row.isLive) {
      sandbox.markDestroyed();
      return;
    }
    for (const record of executions.open) {
      if (record.status === 'granted' && !isToBeSent(record)) this.sendAgain(record);
    }
    const { lineage } = this.#parts;
    const isRebuilt = !OF_GUEST.has(reason) && row.record.sandbox === 'ready' && lineage.ancestors.length > 0;
    this.takenForLost(reason);
    if (isRebuilt) this.#rebuildFor(reason);
  }

  /** Settles when it is known what the next sandbox is made of. */
  get rebuilt(): Promise<void> {
    return this.#rebuilding ?? Promise.resolve();
  }

  #rebuildFor(reason: LostReason): void {
    this.#rebuilding ??= this.#rebuild(reason)
      .catch((error: unknown) => logWarning('not_rebuilt', { detail: messageOf(error) }))
      .finally(() => {
        this.#rebuilding = undefined;
      });
  }

  /** What of its executions the host knows is not known here. */
  takenForLost(reason: LostReason | 'link_lost'): void {
    const { row, sandbox, suspension, deadlines, executions, dispatch } = this.#parts;
    sandbox.markLost(reason);
    this.#cancelWork();
    void suspension.sandboxGone(reason, SANDBOX_GONE);
    if (row.maybe?.state === 'suspended') sandbox.cancelAttach(SANDBOX_GONE);
    // An agent that died in the middle of an attach never makes that sandbox: its grant is used up.
    else if (reason === 'host_restarted') {
      sandbox.cancelAttach(failure('no_host_available', 'the host was restarted as it made the sandbox'));
    }
    deadlines.shorten(executions.open, Date.now());
    if (executions.inFlight.length === 0) void dispatch.pump();
  }

  /** Its host and this object no longer mean the same chain: the next sandbox begins at the head known here. */
  receiptRefused(): void {
    this.abandon('receipt_refused');
    this.#parts.sandbox.tellReceiptRefused();
  }

  /** What ran in the sandbox is unknown; what waits gets a new one. */
  abandon(reason: string): void {
    const { sandbox, suspension, executions, dispatch } = this.#parts;
    this.#links.lossKnown();
    sandbox.abandon(reason);
    this.#cancelWork();
    suspension.cancel(SANDBOX_GONE);
    for (const record of executions.open.slice()) {
      if (!isToBeSent(record)) executions.end(record, { status: 'unknown', reason });
    }
    this.#lanes.freeAll();
    void dispatch.pump();
  }

  /** Nothing of it ran. One that no sandbox takes is refused in the end. */
  sendAgain(record: ExecutionRecord): void {
    const { deadlines, executions } = this.#parts;
    deadlines.disarm(record);
    if (record.grants.length < MAX_SANDBOXES_TRIED) executions.sendAgain(record);
    else executions.end(record, { status: 'refused', reason: 'sandbox_failed' });
  }

  #cancelWork(): void {
    const { transfers, pausing } = this.#parts;
    transfers.linkDown();
    pausing.cancel(SANDBOX_GONE);
  }
}
