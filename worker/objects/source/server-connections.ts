/** How the MCP server of a source is reached. */
import { httpTransport } from '../../sources/mcp/http-transport.ts';
import { addressRules } from '../../tools/http/address.ts';
import type { Asked } from './asking.ts';
import { Connections } from './connections.ts';

const HTTP_IDLE_MS = 60_000;

export function serverConnections(
  { source, secrets, configuration }: Asked,
  { onListChanged }: { onListChanged: () => void },
): Connections {
  return new Connections({
    transport: async () => {
      if (source.kind === 'mcp_http')
        return httpTransport(source, { secrets, rules: addressRules(configuration) });
      throw new Error('only MCP servers are connected to');
    },
    idleMs: HTTP_IDLE_MS,
    onListChanged,
  });
}
