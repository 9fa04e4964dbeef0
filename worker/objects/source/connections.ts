/** The connection to the MCP server of a source: opened by the first call, shared, and closed when nobody used it for a while. */
import { SdkHttpError, type Transport } from '@modelcontextprotocol/client';
import { type McpCall, McpConnection } from '../../sources/mcp/connection.ts';
import { faultOfServer } from '../../sources/mcp/fault.ts';
import type { ListedTools } from '../../sources/mcp/list-tools.ts';
import { ServerFault } from '../../sources/server-fault.ts';
import { type EdgeOutcome, edgeEnd, edgeFailure } from '../../tools/edge-execution.ts';

const OPEN_TIMEOUT_MS = 20_000;
const LIST_TIMEOUT_MS = 30_000;
const MAX_CALLS = 64;
/** Of a server that does not know the session any more: then nothing was done. */
const SESSION_UNKNOWN = 404;

export interface ConnectionsOptions {
  /** A new way to the server. */
  transport: () => Promise<Transport>;
  openTimeoutMs?: number;
  idleMs: number;
  onListChanged: () => void;
}

export interface ListedServer extends ListedTools {
  server: McpConnection['server'];
}

export class Connections {
  readonly #options: ConnectionsOptions;
  readonly #calls = new Map<string, AbortController>();
  #opening: Promise<McpConnection> | undefined;
  #idle: ReturnType<typeof setTimeout> | null = null;
  #uses = 0;

  constructor(options: ConnectionsOptions) {
    this.#options = options;
  }

  async list(): Promise<ListedServer> {
    try {
      return await this.#use(async (connection) => ({
        ...(await connection.listTools({ timeoutMs: LIST_TIMEOUT_MS })),
        server: connection.server,
      }));
    } catch (error: unknown) {
      throw new ServerFault(faultOfServer(error).message);
    }
  }

  async call(callId: string, call: Omit<McpCall, 'signal'>): Promise<EdgeOutcome> {
    if (this.#calls.size >= MAX_CALLS)
      return edgeFailure('SourceBusy', `${MAX_CALLS} calls of this source are under way`);
    const controller = new AbortController();
    const deadlineMs = Date.now() + call.timeoutMs;
    this.#calls.set(callId, controller);
    try {
      return await this.#use((connection) => {
        controller.signal.throwIfAborted();
        const timeoutMs = Math.max(1, deadlineMs - Date.now());
        return connection.call({ ...call, timeoutMs, signal: controller.signal });
      });
    } catch (error: unknown) {
      return controller.signal.aborted ? edgeEnd('interrupted') : outcomeOf(error);
    } finally {
      this.#calls.delete(callId);
    }
  }

  cancel(callId: string): void {
    this.#calls.get(callId)?.abort();
  }

  async close(): Promise<void> {
    clearTimeout(this.#idle);
    const opening = this.#opening;
    this.#opening = undefined;
    for (const controller of this.#calls.values()) controller.abort();
    await opening?.then(
      (connection) => connection.close(),
      () => undefined,
    );
  }

  async #use<T>(work: (connection: McpConnection) => Promise<T>): Promise<T> {
    this.#uses += 1;
    clearTimeout(this.#idle);
    try {
      const connection = await this.#connection();
      try {
        return await work(connection);
      } catch (error: unknown) {
        if (!(error instanceof SdkHttpError) || error.status !== SESSION_UNKNOWN) throw error;
        await this.#drop(connection);
        return await work(await this.#connection());
      }
    } finally {
      this.#uses -= 1;
      if (this.#uses === 0) this.#closeWhenIdle();
    }
  }

  async #connection(): Promise<McpConnection> {
    const known = await this.#opening?.catch(() => undefined);
    if (known?.isOpen === true) return known;
    // Who comes while it opens waits for the same one.
    if (known !== undefined) this.#opening = undefined;
    this.#opening ??= this.#open();
    return this.#opening;
  }

  async #open(): Promise<McpConnection> {
    const { transport, openTimeoutMs = OPEN_TIMEOUT_MS, onListChanged } = this.#options;
    try {
      return await McpConnection.open(await transport(), { timeoutMs: openTimeoutMs, onListChanged });
    } catch (error: unknown) {
      this.#opening = undefined;
      throw error;
    }
  }

  async #drop(connection: McpConnection): Promise<void> {
    this.#opening = undefined;
    await connection.close();
  }

  #closeWhenIdle(): void {
    this.#idle = setTimeout(() => void this.close(), this.#options.idleMs);
  }
}

function outcomeOf(error: unknown): EdgeOutcome {
  const { kind, message } = faultOfServer(error);
  switch (kind) {
    case 'timeout':
      return edgeEnd('timeout');
    case 'cancelled':
      return edgeEnd('interrupted');
    case 'refused':
      return edgeFailure('ServerError', message);
    case 'lost':
      return edgeFailure('SourceUnavailable', message);
  }
}
