/** One connection to an MCP server, of either era: opened, its tools listed to the end, its tools called. */
import { Client, type Transport } from '@modelcontextprotocol/client';
import * as z from 'zod';
import { MAX_SOURCE_BYTES, MAX_TOOLS_OF_A_SOURCE, type SourceState } from '../../../shared/tool-source.ts';
import type { JsonSchema } from '../../tools/definition.ts';
import type { EdgeOutcome } from '../../tools/edge-execution.ts';
import { ServerFault } from '../server-fault.ts';
import { edgeOutcomeOf } from './call-result.ts';

const PROBE_TIMEOUT_MS = 5_000;
const MAX_PAGES = 1_000;

const PageSchema = z.looseObject({
  tools: z.array(z.unknown()),
  nextCursor: z.string().max(16_384).optional(),
});

export interface McpCall {
  remoteName: string;
  inputSchema: JsonSchema;
  arguments: Record<string, unknown>;
  timeoutMs: number;
  signal: AbortSignal;
}

export class McpConnection {
  readonly #client: Client;
  #isOpen = true;

  private constructor(client: Client) {
    this.#client = client;
    client.onclose = () => {
      this.#isOpen = false;
    };
  }

  static async open(
    transport: Transport,
    { timeoutMs, onListChanged }: { timeoutMs: number; onListChanged: () => void },
  ): Promise<McpConnection> {
    const client = new Client(
      { name: 'sandgate', version: '1' },
      {
        capabilities: {},
        versionNegotiation: { mode: 'auto', probe: { timeoutMs: Math.min(PROBE_TIMEOUT_MS, timeoutMs) } },
        // A server that asks back finds nobody here who could answer.
        inputRequired: { autoFulfill: false },
      },
    );
    // An error of the transport comes back as that of a request, or as the end of the connection.
    client.onerror = () => undefined;
    client.setNotificationHandler('notifications/tools/list_changed', onListChanged);
    const connection = new McpConnection(client);
    try {
      await client.connect(transport, { timeout: timeoutMs });
    } catch (error: unknown) {
      await client.close().catch(() => undefined);
      throw error;
    }
    connection.#listen(timeoutMs);
    return connection;
  }

  /** The newer era wants to be asked for changes. A server that does not answer this keeps nobody from its tools. */
  #listen(timeoutMs: number): void {
    const isAsked = this.#client.getProtocolEra() === 'modern';
    if (!isAsked || this.#client.getServerCapabilities()?.tools?.listChanged !== true) return;
    this.#client.listen({ toolsListChanged: true }, { timeout: timeoutMs }).catch(() => undefined);
  }

  get isOpen(): boolean {
    return this.#isOpen;
  }

  get server(): SourceState['server'] {
    const { name = '', version = '' } = this.#client.getServerVersion() ?? {};
    return {
      name: name.slice(0, 256),
      version: version.slice(0, 256),
      protocol_version: this.#client.getNegotiatedProtocolVersion() ?? '',
    };
  }

  /** All pages. A server whose cursors lead round in a circle, or nowhere, is at fault. */
  async listTools({ timeoutMs }: { timeoutMs: number }): Promise<unknown[]> {
    const deadlineMs = Date.now() + timeoutMs;
    const tools: unknown[] = [];
    const seen = new Set<string>();
    let characters = 0;
    let cursor: string | undefined;
    do {
      const timeout = Math.max(1, deadlineMs - Date.now());
      const page = await this.#client.request(
        { method: 'tools/list', params: cursor === undefined ? {} : { cursor } },
        PageSchema,
        { timeout, maxTotalTimeout: timeout },
      );
      tools.push(...page.tools);
      characters += JSON.stringify(page.tools).length;
      cursor = page.nextCursor;
      if (cursor !== undefined && seen.has(cursor)) throw new ServerFault('its list of tools has no end');
      if (cursor !== undefined) seen.add(cursor);
      if (tools.length > MAX_TOOLS_OF_A_SOURCE)
        throw new ServerFault(`it lists more than ${MAX_TOOLS_OF_A_SOURCE} tools`);
      if (characters > MAX_SOURCE_BYTES) throw new ServerFault('its list of tools is too large');
    } while (cursor !== undefined && seen.size < MAX_PAGES && Date.now() < deadlineMs);
    if (cursor !== undefined) throw new ServerFault('its list of tools did not come to an end in time');
    return tools;
  }

  async call({ remoteName, inputSchema, timeoutMs, signal, ...call }: McpCall): Promise<EdgeOutcome> {
    const result = await this.#client.callTool(
      { name: remoteName, arguments: call.arguments },
      {
        // Without its output schema: what a tool gives is checked by who calls it.
        toolDefinition: { name: remoteName, inputSchema: { ...inputSchema, type: 'object' } },
        timeout: timeoutMs,
        maxTotalTimeout: timeoutMs,
        signal,
      },
    );
    return edgeOutcomeOf(result);
  }

  async close(): Promise<void> {
    this.#isOpen = false;
    await this.#client.close().catch(() => undefined);
  }
}
