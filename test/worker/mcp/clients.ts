/** The official client, in the eras that it speaks, on the gateway in this isolate. */

import { exports } from 'cloudflare:workers';
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { ORIGIN } from '../issuer-bindings.ts';

export type Era = '2025-11-25' | '2026-07-28';

export async function connectClient(era: Era, token: string): Promise<Client> {
  const client = new Client(
    { name: 'test', version: '1' },
    era === '2026-07-28' ? { versionNegotiation: { mode: 'auto' } } : {},
  );
  const transport = new StreamableHTTPClientTransport(new URL('/mcp', ORIGIN), {
    requestInit: { headers: { Authorization: `Bearer ${token}` } },
    fetch: (url, init) => exports.default.fetch(new Request(url, init)),
  });
  await client.connect(transport);
  return client;
}
