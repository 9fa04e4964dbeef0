/** How the MCP server of a source is reached. */
import { httpTransport } from '../../sources/mcp/http-transport.ts';
import { StdioTransport } from '../../sources/mcp/stdio-transport.ts';
import { addressRules } from '../../tools/http/address.ts';
import type { Asked } from './asking.ts';
import { BackOff } from './back-off.ts';
import { Connections } from './connections.ts';
import { SourceSandbox, type SourceSandboxOptions } from './sandbox.ts';

const HTTP_IDLE_MS = 60_000;
/** A server may have to fetch itself before it answers. */
const START_TIMEOUT_MS = 60_000;

export function serverConnections(
  { source, secrets, configuration, tenant }: Asked,
  more: Pick<SourceSandboxOptions, 'env' | 'archive' | 'kept' | 'waitUntil'> & { onListChanged: () => void },
): Connections {
  const { onListChanged } = more;
  switch (source.kind) {
    case 'manifest':
      throw new Error('a manifest is not connected to');
    case 'mcp_http': {
      const rules = addressRules(configuration);
      return new Connections({
        transport: () => httpTransport(source, { secrets, rules }),
        idleMs: HTTP_IDLE_MS,
        onListChanged,
      });
    }
    case 'mcp_stdio': {
      const sandbox = new SourceSandbox({ ...more, configuration, tenant, source, secrets });
      return new Connections({
        transport: () => new StdioTransport({ open: () => sandbox.open(), onCut: () => sandbox.distrust() }),
        openTimeoutMs: START_TIMEOUT_MS,
        backOff: new BackOff(),
        onClosed: () => sandbox.close(),
        idleMs: source.idle_timeout_s * 1_000,
        onListChanged,
      });
    }
  }
}
