/** One socket on a terminal: what the client sends goes in, what the terminal says comes out, until one of them ends. */
import { utf8 } from '../../shared/encoding.ts';
import { failure, type Outcome, success } from '../../shared/errors.ts';
import {
  encodeMessage,
  MAX_TERMINAL_MESSAGE_BYTES,
  MESSAGE_BYTES,
  MESSAGE_TEXT,
  TerminalControlSchema,
  type TerminalEvent,
} from '../../shared/program.ts';
import type { Terminal } from '../sandbox/programs/port.ts';
import { takeMessages } from './message-input.ts';
import { NOTHING, type OperationEnd, type ProgramPlace, type ProgramRequestOf, STREAM } from './operation.ts';
import { outputBatches } from './output-batches.ts';

const DEFAULT_SIZE = { rows: 24, cols: 80 };

export async function attachTerminal(
  request: ProgramRequestOf<'terminal_attach'>,
  place: ProgramPlace,
): Promise<OperationEnd> {
  const found = await terminalOf(request, place);
  if (!found.ok) return found;
  const terminal = found.value;
  const detach = terminal.attach();
  // The end of the input is the client's: the socket is closed then, and the terminal is not.
  const left = new AbortController();
  const signal = AbortSignal.any([place.signal, left.signal]);
  try {
    place.head(STREAM);
    void takeMessages(place.incoming, {
      bytes: (bytes) => terminal.write(bytes),
      text: (text) => control(terminal, text),
    }).then(() => left.abort());
    await giveOutput(terminal, { after: request.after, signal }, place);
  } finally {
    detach();
  }
  if (place.signal.aborted) return failure('transfer_failed', 'the terminal was left');
  return success({ ...NOTHING, bytes: place.outgoing.bytes });
}

async function terminalOf(
  { terminal_id: id, create, size }: ProgramRequestOf<'terminal_attach'>,
  { programs }: ProgramPlace,
): Promise<Outcome<Terminal>> {
  if (create) return programs.openTerminal(id, size ?? DEFAULT_SIZE);
  const found = programs.terminal(id);
  if (found.ok && size !== null) found.value.resize(size);
  return found;
}

async function giveOutput(
  terminal: Terminal,
  { after, signal }: { after: number | null; signal: AbortSignal },
  { outgoing }: ProgramPlace,
): Promise<void> {
  const say = (event: TerminalEvent): Promise<void> =>
    outgoing.push(encodeMessage(MESSAGE_TEXT, utf8(JSON.stringify(event))));
  const from = Math.min(after ?? terminal.startOffset, terminal.endOffset);
  const offset = Math.max(from, terminal.startOffset);
  await say({ type: 'ready', terminal_id: terminal.id, offset });
  if (offset > from) await say({ type: 'gap', from, to: offset });
  for await (const batch of outputBatches(terminal, offset, signal)) {
    let bytes: Uint8Array[] = [];
    for (const item of batch) {
      if ('bytes' in item) bytes.push(item.bytes);
      else {
        await giveBytes(Buffer.concat(bytes), outgoing);
        bytes = [];
        await say({ type: 'gap', ...item.gap });
      }
    }
    await giveBytes(Buffer.concat(bytes), outgoing);
  }
  const { end } = terminal;
  if (end !== undefined && !signal.aborted)
    await say({ type: 'exit', exit_code: end.exitCode, signal: end.signal });
}

async function giveBytes(bytes: Uint8Array, outgoing: ProgramPlace['outgoing']): Promise<void> {
  for (let at = 0; at < bytes.length; at += MAX_TERMINAL_MESSAGE_BYTES) {
    const piece = bytes.subarray(at, at + MAX_TERMINAL_MESSAGE_BYTES);
    await outgoing.push(encodeMessage(MESSAGE_BYTES, piece));
  }
}

function control(terminal: Terminal, bytes: Uint8Array): boolean {
  const parsed = TerminalControlSchema.safeParse(jsonOf(bytes));
  if (!parsed.success) return false;
  const message = parsed.data;
  if (message.type === 'resize') terminal.resize(message);
  if (message.type === 'signal') terminal.signal(message.name);
  return true;
}

function jsonOf(bytes: Uint8Array): unknown {
  try {
    return JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(bytes));
  } catch {
    return undefined;
  }
}
