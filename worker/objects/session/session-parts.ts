/** What a session object consists of, for those of its parts that have to do with many others. */
import type { Deadlines } from './deadlines.ts';
import type { Dispatch } from './dispatch.ts';
import type { Executions } from './executions.ts';
import type { SessionLink } from './link.ts';
import type { Pausing } from './pausing.ts';
import type { Programs } from './programs/programs.ts';
import type { SandboxKeeper } from './sandbox.ts';
import type { SessionRow } from './session-row.ts';
import type { Suspension } from './suspension.ts';
import type { Transfers } from './transfers.ts';
import type { Waking } from './waking.ts';

export interface SessionParts {
  readonly row: SessionRow;
  readonly executions: Executions;
  readonly link: SessionLink;
  readonly sandbox: SandboxKeeper;
  readonly dispatch: Dispatch;
  readonly transfers: Transfers;
  readonly programs: Programs;
  readonly deadlines: Deadlines;
  readonly pausing: Pausing;
  readonly suspension: Suspension;
  readonly waking: Waking;
  /** Sees to it that the alarm rings when it has to. */
  look(): void;
}
