/** How a call of a program ended. */
import type { TerminalStatus } from '../../../../shared/lifecycle.ts';
import type { Given } from '../../../tools/given.ts';

export type CallEnd = Given & {
  status: 'succeeded' | 'failed' | 'refused' | 'unknown';
  /** How its execution ended, where that says more. */
  outcome?: TerminalStatus;
};

/** A call that is made again after a restart may be refused then: how the first time ended is unknown. */
export const OUTCOMES: Record<CallEnd['status'], TerminalStatus> = {
  succeeded: 'succeeded',
  failed: 'failed',
  refused: 'unknown',
  unknown: 'unknown',
};
