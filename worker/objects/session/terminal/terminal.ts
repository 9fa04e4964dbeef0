/** A client's socket on a terminal, or on a process that is its own: opened when the host has the terminal, closed with it, and never kept. */

import type { TransferRequest } from '../../../../shared/transfer.ts';
import type { SessionRuntime } from '../runtime.ts';
import { beginTransfer, refused } from '../transfers/transfer-calls.ts';
import { TerminalSocket } from './terminal-socket.ts';

export async function openTerminal(runtime: SessionRuntime, request: Request): Promise<Response> {
  const begun = await beginTransfer(runtime, request, isOverSocket);
  if (!begun.ok) return refused(begun);
  const { transfer } = begun;
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

function isOverSocket({ operation }: TransferRequest): boolean {
  return operation === 'terminal_attach' || operation === 'process_pipe';
}
