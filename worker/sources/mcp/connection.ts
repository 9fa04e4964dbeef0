/** One connection to an MCP server, of either era: opened, its tools listed to the end, its tools called. */
import { Client, type Transport } from '@modelcontextprotocol/client';
import type { SourceState } from '../../../shared/tool-source.ts';
import type { JsonSchema } from '../../tools/definition.ts';
import type { EdgeOutcome, OnEdgeProgress } from '../../tools/edge-execution.ts';
import { CallProgress } from './call-progress.ts';
import { edgeOutcomeOf } from './call-result.ts';
import { withExactIntegers } from './exact-tools.ts';
import { type ListedTools, listTools, ToolsPageSchema } from './list-tools.ts';

const PROBE_TIMEOUT_MS = 5_000;

export interface McpCall {
  remoteName: string;
  inputSchema: JsonSchema;
  arguments: Record<string, unknown>;
  timeoutMs: number;
  signal: AbortSignal;
  /** Absent where nobody wants to know. */
  onProgress?: OnEdgeProgress | undefined;
}

export class McpConnection {
  readonly #client: Client;
  #isOpen = true;
  /** Called once, when it has ended. */
  onEnded: () => void = () => undefined;

  private constructor(client: Client) {
    this.#client = client;
    client.onclose = () => {
      if (!this.#isOpen) return;
      this.#isOpen = false;
      this.onEnded();
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

  listTools({ timeoutMs }: { timeoutMs: number }): Promise<ListedTools> {
    return listTools(async (cursor, timeout) => {
      const params = cursor === undefined ? {} : { cursor };
      const options = { timeout, maxTotalTimeout: timeout };
      return withExactIntegers(
        await this.#client.request({ method: 'tools/list', params }, ToolsPageSchema, options),
      );
    }, timeoutMs);
  }

  async call({
    remoteName,
    inputSchema,
    timeoutMs,
    signal,
    onProgress,
    ...call
  }: McpCall): Promise<EdgeOutcome> {
    const progress = onProgress === undefined ? undefined : new CallProgress(onProgress);
    try {
      const result = await this.#client.callTool(
        { name: remoteName, arguments: call.arguments },
        {
          // Without its output schema: what a tool gives is checked by who calls it.
          toolDefinition: { name: remoteName, inputSchema: { ...inputSchema, type: 'object' } },
          timeout: timeoutMs,
          maxTotalTimeout: timeoutMs,
          signal,
          ...(progress === undefined ? {} : { onprogress: (said) => progress.took(said) }),
        },
      );
      return edgeOutcomeOf(result);
    } finally {
      progress?.close();
    }
  }

  async close(): Promise<void> {
    this.#isOpen = false;
    await this.#client.close().catch(() => undefined);
  }
}
