/** The sandbox of a source's own, in which its MCP server runs: a session that no caller sees, made when it is needed. */

import { toBase64, utf8 } from '../../../shared/encoding.ts';
import { failure, type Outcome, success } from '../../../shared/errors.ts';
import { newId, newSessionId } from '../../../shared/ids.ts';
import { NetworkSchema } from '../../../shared/network.ts';
import { CreateSessionSchema } from '../../../shared/session.ts';
import type { ToolSource } from '../../../shared/tool-source.ts';
import type { TransferRequest } from '../../../shared/transfer.ts';
import { placeAndCreate } from '../../calls/create-session.ts';
import { type OwnSession, sessionOf } from '../../calls/own-session.ts';
import { asciiJson, failureIn } from '../../calls/session-stream.ts';
import { writeTransfer } from '../../calls/session-transfer.ts';
import type { Configuration } from '../../configuration.ts';
import type { Env } from '../../env.ts';
import type { Exchange } from '../../routing/route.ts';
import { secretsOf } from '../../sources/secrets.ts';
import { ServerFault } from '../../sources/server-fault.ts';
import { SAFE, UNSAFE } from '../object-calls.ts';
import { FILE_HEADERS, INTERNAL_HEADERS, INTERNAL_PATHS } from '../session/port.ts';

type StdioSource = Extract<ToolSource, { kind: 'mcp_stdio' }>;

/** Of a session whose source went away without a word: as long as there is a connection, it is in use. */
const ORPHAN_TIMEOUT_S = 60;
const WORKSPACE = '/workspace';

export interface KeptSession {
  /** With the epoch in which its files were put there: in another one it has none of them. */
  session: { id: string; epoch: number } | null;
}

export interface SourceSandboxOptions {
  env: Env;
  configuration: Configuration;
  tenant: string;
  source: StdioSource;
  secrets: Record<string, string>;
  /** Files that are there before the server starts. */
  archive: () => ReadableStream<Uint8Array> | null;
  /** Where its session is kept: it outlives this object's memory. */
  kept: KeptSession;
  waitUntil: (promise: Promise<unknown>) => void;
}

export class SourceSandbox {
  readonly #options: SourceSandboxOptions;
  #isTrusted = true;

  constructor(options: SourceSandboxOptions) {
    this.#options = options;
  }

  /** Starts the server; it ends with the socket. */
  async open(): Promise<WebSocket> {
    const session = (await this.#found()) ?? (await this.#made());
    const started = await this.#start(session);
    // A sandbox in which nothing starts may be one that is gone.
    if (!started.ok) this.distrust();
    return must('the process did not start', started);
  }

  #start(session: OwnSession): Promise<Outcome<WebSocket>> {
    const { command, args, cwd } = this.#options.source;
    const request: TransferRequest = {
      operation: 'process_pipe',
      process_id: newId('prc'),
      argv: [command, ...args],
      cwd: cwd ?? null,
      environment: secretsOf(this.#options.secrets, 'environment'),
    };
    return session.call(async (stub) => {
      const headers = {
        Upgrade: 'websocket',
        [INTERNAL_HEADERS.caller]: asciiJson(session.caller),
        [FILE_HEADERS.request]: asciiJson(request),
      };
      const url = `https://session${INTERNAL_PATHS.terminal}`;
      const response = await stub.fetch(new Request(url, { headers }));
      if (response.webSocket !== null) return success(response.webSocket);
      return response.status < 400 ? failure('internal', 'the session gave no socket') : failureIn(response);
    }, UNSAFE);
  }

  /** The next process gets a new one. */
  distrust(): void {
    this.#isTrusted = false;
  }

  async close(): Promise<void> {
    const { kept } = this.#options;
    const known = kept.session;
    if (known === null) return;
    kept.session = null;
    const session = sessionOf(this.#exchange(), known.id);
    await session.call((stub) => stub.destroy(session.caller), UNSAFE).catch(() => undefined);
  }

  async #found(): Promise<OwnSession | undefined> {
    const known = this.#options.kept.session;
    if (known === null) return undefined;
    const session = sessionOf(this.#exchange(), known.id);
    const described = await session.call((stub) => stub.describe(session.caller), SAFE);
    const isSame =
      described.ok && described.value.state === 'running' && described.value.epoch === known.epoch;
    if (isSame && this.#isTrusted) return session;
    await this.close();
    return undefined;
  }

  async #made(): Promise<OwnSession> {
    const { source, tenant, configuration, kept } = this.#options;
    const exchange = this.#exchange();
    const sessionId = await newSessionId(configuration.tagKey, tenant);
    const request = CreateSessionSchema.parse({
      image: source.image,
      limits: source.limits,
      pool: source.pool,
      network: this.#network(),
      metadata: { tool_source: source.name },
      idle_timeout_s: ORPHAN_TIMEOUT_S,
    });
    const create = { sessionId, fresh: true, request, ephemeral: false };
    const { epoch } = must('its sandbox was not made', await placeAndCreate(exchange, create));
    kept.session = { id: sessionId, epoch };
    this.#isTrusted = true;
    const session = sessionOf(exchange, sessionId);
    const archive = this.#options.archive();
    if (archive !== null) {
      const path = toBase64(utf8(WORKSPACE));
      try {
        await writeTransfer(session, { operation: 'extract', path }, archive);
      } catch {
        await this.close();
        throw new ServerFault('its files could not be extracted');
      }
    }
    return session;
  }

  #network() {
    const { source, secrets } = this.#options;
    if (source.network === null) return null;
    const injected = secretsOf(secrets, 'inject');
    const inject = source.network.inject.map((header, n) => ({ ...header, secret: injected[String(n)] }));
    return NetworkSchema.parse({ allow: source.network.allow, inject });
  }

  /** As if the source itself had asked. No token has a subject with such a character: no caller is taken for it. */
  #exchange(): Exchange<'tenant'> {
    const { env, configuration, tenant, source, waitUntil } = this.#options;
    return {
      request: new Request('https://source/'),
      env,
      configuration,
      principal: {
        kind: 'tenant',
        tenant,
        subject: `\u0001tool_source:${source.name}`,
        client: 'tool_source',
        scopes: new Set(),
        toolPolicy: null,
        tokenId: '',
        issuedAtMs: 0,
        expiresAtMs: Number.MAX_SAFE_INTEGER,
        apiKeyId: null,
      },
      requestId: newId('req'),
      receivedMs: Date.now(),
      waitUntil,
    };
  }
}

function must<T>(what: string, outcome: Outcome<T>): T {
  if (!outcome.ok) throw new ServerFault(`${what}: ${outcome.code}: ${outcome.detail}`);
  return outcome.value;
}
