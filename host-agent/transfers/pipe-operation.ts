/** A process whose standard streams are one transfer: it begins and ends with it. */
import { utf8 } from '../../shared/encoding.ts';
import { failure, success } from '../../shared/errors.ts';
import {
  encodeMessage,
  MAX_TERMINAL_MESSAGE_BYTES,
  MESSAGE_BYTES,
  MESSAGE_TEXT,
  type TerminalEvent,
} from '../../shared/program.ts';
import type { PipedProcess } from '../sandbox/programs/port.ts';
import { takeMessages } from './message-input.ts';
import { NOTHING, type OperationEnd, type ProgramPlace, type ProgramRequestOf, STREAM } from './operation.ts';
import { outputBatches } from './output-batches.ts';

/** For a server to put away what it holds, once nobody speaks to it any more. */
const STOP_GRACE_MS = 2_000;
/** So that a message of it is short enough, whatever it takes to write it as JSON. */
const STDERR_PIECE_BYTES = 8 * 1024;

export async function pipeProcess(
  { process_id, argv, cwd, environment }: ProgramRequestOf<'process_pipe'>,
  place: ProgramPlace,
): Promise<OperationEnd> {
  const started = await place.programs.openPipe(process_id, { argv, cwd, environment });
  if (!started.ok) return started;
  const process = started.value;
  const left = new AbortController();
  const signal = AbortSignal.any([place.signal, left.signal]);
  try {
    place.head(STREAM);
    void takeMessages(place.incoming, {
      bytes: (bytes) => process.write(bytes),
      // What is for terminals is nothing here.
      text: () => true,
    }).then(() => left.abort());
    await giveOutput(process, signal, place);
  } finally {
    await process.stop(STOP_GRACE_MS);
  }
  if (place.signal.aborted) return failure('transfer_failed', 'the process was left');
  return success({ ...NOTHING, bytes: place.outgoing.bytes });
}

async function giveOutput(
  process: PipedProcess,
  signal: AbortSignal,
  { outgoing }: ProgramPlace,
): Promise<void> {
  const say = (event: TerminalEvent): Promise<void> =>
    outgoing.push(encodeMessage(MESSAGE_TEXT, utf8(JSON.stringify(event))));
  for await (const batch of outputBatches(process, 0, signal)) {
    for (const item of batch) {
      // Nothing of it is let go before it was taken.
      if ('gap' in item) continue;
      const { stream, bytes } = item;
      const pieceBytes = stream === 'stdout' ? MAX_TERMINAL_MESSAGE_BYTES : STDERR_PIECE_BYTES;
      for (let at = 0; at < bytes.length; at += pieceBytes) {
        const piece = bytes.subarray(at, at + pieceBytes);
        if (stream === 'stdout') await outgoing.push(encodeMessage(MESSAGE_BYTES, piece));
        else await say({ type: 'stderr', text: new TextDecoder().decode(piece) });
      }
    }
  }
  const { end } = process;
  if (end !== undefined && !signal.aborted)
    await say({ type: 'exit', exit_code: end.exitCode, signal: end.signal });
}
