/** A session of which this host still has something: a living sandbox, or only news of one that is gone. */
import type { LeaseState } from './lease.ts';

/** `told`: the edge knows. `fenced`: it does not want to. `abandoned`: it was silent too long. `stopped`: we stop. `left`: to our successor. */
export type SessionEnd = 'told' | 'fenced' | 'abandoned' | 'stopped' | 'left';

export interface HeldSession {
  readonly epoch: number;
  readonly holdsSandbox: boolean;
  /** Digest of the image of its sandbox, if there is one. */
  readonly image: string | undefined;
  /** Settles when nothing of it is left on the host. */
  readonly gone: Promise<SessionEnd>;
  /** What the lease of the host allows: its sandbox runs, stands still, or ends. */
  setLease(state: LeaseState): void;
  /** Ends the sandbox and tells the edge, as long as it listens. */
  destroy(): Promise<void>;
  /** A newer epoch of the session takes its place: this one counts no more. */
  fence(): Promise<void>;
  /**
   * The agent stops: starts nothing more, and waits for what runs as long as its `patience` lasts. `isSucceeded`: for another
   * one, which goes on with a sandbox that is at rest then.
   */
  stop(patience: Promise<void>, isSucceeded: boolean): Promise<void>;
}
