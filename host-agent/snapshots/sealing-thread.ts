/** What runs in a thread of `SealingThreads`: one piece after the other. Memory goes to and fro and is not copied. */
import { isMarkedAsUntransferable, parentPort } from 'node:worker_threads';
import { openPiece, type SealedPiece, type SealingKeys, sealPiece } from './sealed-piece.ts';

export type SealingTask = { keys: SealingKeys } & (
  | { act: 'seal'; piece: Uint8Array }
  | { act: 'open'; stored: Uint8Array; bytes: number }
);

export type SealingDone = { sealed: SealedPiece } | { opened: Uint8Array<ArrayBuffer> | undefined };

parentPort?.on('message', (task: SealingTask) => {
  if (task.act === 'seal') {
    const sealed = sealPiece(task.keys, task.piece);
    answer({ sealed }, sealed.stored);
    return;
  }
  const opened = openPiece(task.keys, task.stored, task.bytes);
  answer({ opened }, opened);
});

function answer(done: SealingDone, bytes: Uint8Array<ArrayBuffer> | undefined): void {
  // Small results lie in memory that Node shares among buffers: they are copied.
  const isOurs = bytes !== undefined && !isMarkedAsUntransferable(bytes.buffer);
  parentPort?.postMessage(done, isOurs ? [bytes.buffer] : []);
}
