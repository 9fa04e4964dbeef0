/** Connects to one of the addresses that were checked, and to nothing else. */
import { connect, type Socket } from 'node:net';

export type Dialled =
  | { readonly ok: true; readonly socket: Socket }
  | { readonly ok: false; readonly reason: 'unreachable' | 'connect_timeout' };

export const CONNECT_TIMEOUT_MS = 10_000;

/** In turn; the time is for all of them together. */
export async function dial(
  addresses: readonly string[],
  port: number,
  signal: AbortSignal,
  timeoutMs = CONNECT_TIMEOUT_MS,
): Promise<Dialled> {
  const deadline = AbortSignal.any([signal, AbortSignal.timeout(timeoutMs)]);
  for (const address of addresses) {
    const socket = await connectTo(address, port, deadline);
    if (socket !== undefined) return { ok: true, socket };
    if (deadline.aborted) return { ok: false, reason: 'connect_timeout' };
  }
  return { ok: false, reason: 'unreachable' };
}

function connectTo(address: string, port: number, signal: AbortSignal): Promise<Socket | undefined> {
  const { promise, resolve } = Promise.withResolvers<Socket | undefined>();
  const socket = connect({
    host: address,
    port,
    noDelay: true,
    autoSelectFamily: false,
    // A tunnel may go on in one direction when the other has ended.
    allowHalfOpen: true,
    // Never called for an address; a name must not get as far as this.
    lookup: (_name, _options, done) => done(new Error('an address was expected'), '', 0),
  });
  const abort = (): void => {
    socket.destroy();
  };
  signal.addEventListener('abort', abort, { once: true });
  socket.once('connect', () => resolve(socket));
  socket.once('error', () => resolve(undefined));
  socket.once('close', () => resolve(undefined));
  return promise.finally(() => signal.removeEventListener('abort', abort));
}
