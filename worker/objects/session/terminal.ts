/** A client's socket on a terminal: opened when the host has the terminal, closed with it, and never kept. */
import { failure } from '../../../shared/errors.ts';
import { readTransferRequest, refused, stateFault } from './file-calls.ts';
import { readCaller } from './internal-request.ts';
import type { SessionRuntime } from './runtime.ts';
import { TerminalSocket } from './terminal-socket.ts';

export async function openTerminal(runtime: SessionRuntime, request: Request): Promise<Response> {
  const caller = readCaller(request);
  const asked = readTransferRequest(request);
  if (caller === undefined || asked?.operation !== 'terminal_attach')
    return refused(failure('internal', 'internal request: terminal'));
  const fault = stateFault(runtime, caller);
  if (fault !== undefined) return refused(fault);
  const begun = await runtime.transfers.begin(asked);
  if (!begun.ok) return refused(begun);
  const transfer = begun.value;
  const head = await transfer.head;
  if (!head.ok) return refused(head);
  const { 0: client, 1: server } = new WebSocketPair();
  server.binaryType = 'arraybuffer';
  // Not one that survives hibernation: what it is attached to does not either.
  server.accept();
  const socket = new TerminalSocket(server, transfer, { used: () => runtime.transfers.used() });
  void socket.run();
  // An extension that does not exist is how the runtime is told not to compress; it is not sent.
  return new Response(null, {
    status: 101,
    webSocket: client,
    headers: { 'sec-websocket-extensions': 'none' },
  });
}
