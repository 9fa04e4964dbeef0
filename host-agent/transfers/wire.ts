/** What a transfer needs of the link: frames that are sent now or not at all. */
import type { TransferUp } from '../../shared/frames.ts';

type WithoutPlace<Frame> = Frame extends unknown ? Omit<Frame, 'epoch' | 'transfer_id'> : never;
/** A frame before it is known of which sandbox and transfer it is. */
export type TransferFrame = WithoutPlace<TransferUp>;

export interface TransferWire {
  /** False while the link is down: the frame is lost, and the transfer with it. */
  sendTransfer(frame: TransferUp, payload?: Uint8Array): boolean;
}
