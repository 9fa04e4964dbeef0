/** What an execution needs of the link of its session: numbered frames up, under a window. */
import type { SequencedUp } from '../../shared/frames.ts';
import type { StoredFrame } from '../journal/state.ts';

type Unnumbered<Frame> = Frame extends unknown ? Omit<Frame, 'epoch' | 'seq'> : never;
/** A frame before the link gives it its epoch and number. */
export type UpFrame = Unnumbered<SequencedUp>;

export interface OutgoingFrame {
  frame: UpFrame;
  payload: Uint8Array;
}

export interface Uplink {
  /** Numbers the frame, keeps it until it is acknowledged, and sends it when the link is up. */
  send(frame: UpFrame, payload?: Uint8Array): number;
  /**
   * Resolves when a frame with this much payload of the execution fits, or when the signal aborts: into the window, or
   * into a small share that each execution has, however slowly others are read.
   */
  waitForRoom(payloadBytes: number, executionId: string, signal?: AbortSignal): Promise<void>;
  /** Whether that much can be sent now. */
  hasRoom(payloadBytes: number, executionId: string): boolean;
  whenAcknowledged(seq: number): Promise<void>;
  unacknowledgedOf(executionId: string): StoredFrame[];
  /** So much is unacknowledged that answers which can be left out should be. */
  readonly isOverfull: boolean;
}
