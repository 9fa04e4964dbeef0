/** What runs in a thread of `SealingThreads`: one piece after the other. Memory goes to and fro and is not copied. */
import { isMarkedAsUntransferable, parentPort } from 'node:worker_threads';
import { openPiece, type SealedPiece, type SealingKeys, sealPiece } from './sealed-piece.ts';

export type SealingTask = { keys: SealingKeys } & (
  | { act: 'seal'; piece: Uint8Array<ArrayBuffer>; into?: ArrayBuffer }
  | { act: 'open'; stored: Uint8Array; bytes: number }
);

export type SealingDone =
  | { sealed: SealedPiece; spent: ArrayBuffer | null }
  | { opened: Uint8Array<ArrayBuffer> | undefined };

parentPort?.on('message', (task: SealingTask) => {
  if (task.act === 'seal') {
    const sealed = sealPiece(task.keys, task.piece, task.into);
    const spent = task.into === undefined ? null : task.piece.buffer;
    answer({ sealed, spent }, [sealed.stored.buffer, ...(spent === null ? [] : [spent])]);
    return;
  }
  const opened = openPiece(task.keys, task.stored, task.bytes);
  answer({ opened }, opened === undefined ? [] : [opened.buffer]);
});

function answer(done: SealingDone, buffers: ArrayBuffer[]): void {
  // Small results lie in memory that Node shares among buffers: they are copied.
  parentPort?.postMessage(
    done,
    buffers.filter((buffer) => !isMarkedAsUntransferable(buffer)),
  );
}
