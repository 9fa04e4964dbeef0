/** What a session object consists of, for those of its parts that have to do with many others. */
import type { Deadlines } from './executions/deadlines.ts';
import type { Dispatch } from './executions/dispatch.ts';
import type { Executions } from './executions/executions.ts';
import type { Pausing } from './lifecycle/pausing.ts';
import type { Lineage } from './lineage/lineage.ts';
import type { SessionLink } from './link/link.ts';
import type { Programs } from './programs/programs.ts';
import type { SessionRow } from './rows/session-row.ts';
import type { SandboxKeeper } from './sandbox/sandbox.ts';
import type { Suspension } from './suspension/suspension.ts';
import type { Waking } from './suspension/waking.ts';
import type { Transfers } from './transfers/transfers.ts';

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
  readonly lineage: Lineage;
  /** Sees to it that the alarm rings when it has to. */
  look(): void;
}
