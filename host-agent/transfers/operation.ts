/** What every operation of a transfer is given, and what comes of it. */
import type { Outcome } from '../../shared/errors.ts';
import type { ProgramRequest } from '../../shared/program.ts';
import type { TransferHead, TransferResult } from '../../shared/transfer.ts';
import type { SandboxFiles } from '../sandbox/files/port.ts';
import type { SandboxPrograms } from '../sandbox/programs/port.ts';
import type { Incoming } from './incoming.ts';
import type { Outgoing } from './outgoing.ts';

export interface OperationPlace {
  files: SandboxFiles;
  path: Uint8Array;
  /** Of an archive that is made: sparse files are in it with their holes, so it may be longer than all that there is. */
  maxArchiveBytes: number;
  signal: AbortSignal;
  /** Said once, before the bytes. */
  head: (head: TransferHead) => void;
  outgoing: Outgoing;
  incoming: Incoming;
}

export interface ProgramPlace extends Omit<OperationPlace, 'files' | 'path' | 'maxArchiveBytes'> {
  programs: SandboxPrograms;
}

export type ProgramRequestOf<Operation extends ProgramRequest['operation']> = Extract<
  ProgramRequest,
  { operation: Operation }
>;

export type OperationEnd = Outcome<TransferResult> & { size?: number };

export const STREAM: TransferHead = { answer: 'stream', facts: null, offset: 0, length: null };
export const NOTHING: TransferResult = { bytes: 0, sha256: null, created: false, facts: null, entries: 0 };
