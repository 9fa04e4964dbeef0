/** The connection to the MCP server of a source: opened by the first call, shared, and closed when nobody used it for a while. */
import { SdkHttpError, type Transport } from '@modelcontextprotocol/client';
import { ownMessage } from '../../sources/fault.ts';
import { type McpCall, McpConnection } from '../../sources/mcp/connection.ts';
import { faultOfServer } from '../../sources/mcp/fault.ts';
import type { ListedTools } from '../../sources/mcp/list-tools.ts';
import { ServerFault } from '../../sources/server-fault.ts';
import { type EdgeOutcome, edgeEnd, edgeFailure } from '../../tools/edge-execution.ts';
import type { BackOff } from './back-off.ts';

const OPEN_TIMEOUT_MS = 20_000;
const LIST_TIMEOUT_MS = 30_000;
const MAX_CALLS = 64;
/** Of a server that does not know the session any more: then nothing was done. */
const SESSION_UNKNOWN = 404;

export interface ConnectionsOptions {
  /** A new way to the server; one that ends by itself can say why. */
  transport: () => Transport & { readonly fault?: string | undefined };
  /** Of a server that has to be started. */
  backOff?: BackOff;
  /** Resolves when nothing is left of what the connection needed. */
  onClosed?: () => Promise<void>;
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
  #faultOf: () => string | undefined = () => undefined;

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
      throw new ServerFault(this.#messageOf(error));
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
      return controller.signal.aborted ? edgeEnd('interrupted') : this.#outcomeOf(error);
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
    await this.#options.onClosed?.();
  }

  async #use<T>(work: (connection: McpConnection) => Promise<T>): Promise<T> {
    this.#uses += 1;
    clearTimeout(this.#idle);
    try {
      const connection = await this.#connection();
      try {
        const done = await work(connection);
        this.#options.backOff?.succeeded();
        return done;
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
    const former = this.#opening;
    const known = await former?.catch(() => undefined);
    if (known?.isOpen === true) return known;
    // Whoever else waited for the former one may have begun another meanwhile.
    if (this.#opening === former) this.#opening = this.#open();
    if (this.#opening === undefined) throw new ServerFault('the connection was closed');
    return this.#opening;
  }

  async #open(): Promise<McpConnection> {
    const { openTimeoutMs = OPEN_TIMEOUT_MS, onListChanged, backOff } = this.#options;
    const bar = backOff?.barAt(Date.now());
    try {
      if (bar !== undefined) throw new ServerFault(bar);
      const transport = this.#options.transport();
      this.#faultOf = () => transport.fault;
      const connection = await McpConnection.open(transport, { timeoutMs: openTimeoutMs, onListChanged });
      connection.onEnded = () => {
        // Of one that nobody closed.
        if (transport.fault !== undefined) backOff?.failed(transport.fault, Date.now());
      };
      return connection;
    } catch (error: unknown) {
      if (bar === undefined) backOff?.failed(this.#messageOf(error), Date.now());
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

  #messageOf(error: unknown): string {
    const { kind, message } = faultOfServer(error);
    return ownMessage(error) ?? (kind === 'lost' ? this.#faultOf() : undefined) ?? message;
  }

  #outcomeOf(error: unknown): EdgeOutcome {
    const { kind, message } = faultOfServer(error);
    switch (kind) {
      case 'timeout':
        return edgeEnd('timeout');
      case 'cancelled':
        return edgeEnd('interrupted');
      case 'refused':
        return edgeFailure('ServerError', message);
      case 'lost':
        return edgeFailure('SourceUnavailable', this.#messageOf(error));
    }
  }
}
