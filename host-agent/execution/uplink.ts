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
  /** Resolves when a frame with this much payload fits into the window, or when the signal aborts. */
  waitForRoom(payloadBytes: number, signal?: AbortSignal): Promise<void>;
  whenAcknowledged(seq: number): Promise<void>;
  unacknowledgedOf(executionId: string): StoredFrame[];
  /** So much is unacknowledged that answers which can be left out should be. */
  readonly isOverfull: boolean;
}
