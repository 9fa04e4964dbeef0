/** Ends of executions that are in the journal, and that the edge may not have: told as they were, in the order of their receipts. */
import { sendInOrder, tellFinished } from '../execution/run.ts';
import type { OutgoingFrame, Uplink } from '../execution/uplink.ts';
import type { Journal } from '../journal/journal.ts';
import type { SessionState, StoredFrame } from '../journal/state.ts';

/** `untold` has those that are yet to be told from the moment of the call on. */
export async function tellUntoldEnds(
  { executions }: Pick<SessionState, 'executions'>,
  { journal, uplink, untold }: { journal: Journal; uplink: Uplink; untold: Set<string> },
): Promise<void> {
  const ends = [...executions.values()].flatMap(({ started, finished, acknowledged }) =>
    finished === null || acknowledged ? [] : [{ started, finished }],
  );
  for (const { started } of ends) untold.add(started.execution_id);
  // Of different tools, what began first need not have ended first.
  ends.sort((left, right) => left.finished.receiptSeq - right.finished.receiptSeq);
  for (const { started, finished } of ends) {
    await sendInOrder(uplink, finished.frames.map(outgoing), started.execution_id);
    untold.delete(started.execution_id);
    tellFinished({ journal, uplink }, started, finished);
  }
}

function outgoing({ header, payload }: StoredFrame): OutgoingFrame {
  const { epoch: _epoch, seq: _seq, ...frame } = header;
  return { frame, payload };
}
