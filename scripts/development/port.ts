/** TCP ports on the loopback address. */
import { createServer } from 'node:net';
import { SetupFailure } from '../../host-agent/setup/failure.ts';

const LOOPBACK = '127.0.0.1';
const DEFAULT_PORT = 8787;

export function parsePort(text: string | undefined): number {
  if (text === undefined || text === '') return DEFAULT_PORT;
  const port = Number(text);
  if (!/^\d{1,5}$/.test(text) || port > 65_535) {
    throw new SetupFailure(`PORT must be a number from 0 to 65535, not ${JSON.stringify(text)}`);
  }
  return port;
}

/** The port itself when it is free; port 0 gives any free one. */
export async function requireFreePort(port: number): Promise<number> {
  const server = createServer();
  return new Promise((resolve, reject) => {
    server.once('error', (error: NodeJS.ErrnoException) => {
      const reason = error.code === 'EADDRINUSE' ? 'is in use' : `cannot be used (${error.code})`;
      reject(new SetupFailure(`port ${port} ${reason}; set PORT to another one`));
    });
    server.listen(port, LOOPBACK, () => {
      const address = server.address();
      const chosen = typeof address === 'object' && address !== null ? address.port : port;
      server.close(() => resolve(chosen));
    });
  });
}
