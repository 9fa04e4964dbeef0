/** One tool source: asks it for its tools, keeps the connection to it, and makes the calls of its tools. */
import { DurableObject } from 'cloudflare:workers';

import { ERRORS, failure, type Outcome, success } from '../../../shared/errors.ts';
import type { SourceState, ToolSource } from '../../../shared/tool-source.ts';
import { type Configuration, configurationOf } from '../../configuration.ts';
import type { Env } from '../../env.ts';
import { openSecrets } from '../../secrets/sealed-secrets.ts';
import { messageOfFault } from '../../sources/fault.ts';
import { parseManifest } from '../../sources/fetch-manifest.ts';
import { secretsHolder, WEBHOOK_SECRET } from '../../sources/secrets.ts';
import {
  type EdgeOutcome,
  type EdgeProgress,
  edgeFailure,
  type OnEdgeProgress,
} from '../../tools/edge-execution.ts';
import { verifiedAtMs, WEBHOOK_TOLERANCE_MS } from '../../webhooks/signature.ts';
import type { StoredSource } from '../catalogue/port.ts';
import { logWarning, messageOf } from '../log.ts';
import { archiveFault, archiveOwnerOf, archiveStream, takeArchive } from './archive.ts';
import { type Asked, askManifest, askServer, type Found, takeManifest } from './asking.ts';
import type { Connections } from './connections.ts';
import { nextPollAtMs } from './polling.ts';
import type { SourceCall, SourceOwner, SourcePort, SourcePush } from './port.ts';
import { SourceObjectStore } from './store.ts';

const FAILED_SERVER_INTERVAL_MS = 3_600_000;
/** Servers tell of each of several changes. */
const LIST_CHANGED_DELAY_MS = 300;

interface Held {
  source: ToolSource;
  connections: Connections;
}

export class SourceObject extends DurableObject<Env> implements SourcePort {
  readonly #store: SourceObjectStore;
  #held: Promise<Held | undefined> | undefined;
  #refreshing: Promise<Outcome<null>> | undefined;
  /** How often it was changed: what is found for a former definition sets no alarm. */
  #changes = 0;

  constructor(ctx: DurableObjectState, env: Env) {
    super(ctx, env);
    this.#store = new SourceObjectStore(ctx.storage);
  }

  async changed(owner: SourceOwner): Promise<Outcome<null>> {
    this.#store.own(owner);
    this.#changes += 1;
    await this.#forget();
    // An alarm runs as long as it has to, whoever waits for what.
    await this.ctx.storage.setAlarm(Date.now());
    return success(null);
  }

  async refresh(owner: SourceOwner): Promise<Outcome<null>> {
    this.#store.own(owner);
    return this.#refresh();
  }

  async push(owner: SourceOwner, { headers, body }: SourcePush): Promise<Outcome<null>> {
    this.#store.own(owner);
    const asked = await this.#asked();
    const secret = asked?.secrets[WEBHOOK_SECRET];
    const sentAtMs = secret === undefined ? undefined : await verifiedAtMs(secret, headers, body);
    if (asked === undefined || sentAtMs === undefined)
      return failure('unauthenticated', 'the message is not signed as this source signs, or not now');
    const { seen } = asked;
    const isNew = this.#store.takePush(headers.id, sentAtMs, Date.now() - 2 * WEBHOOK_TOLERANCE_MS);
    // What was overtaken by a newer one says nothing any more.
    if (!isNew || sentAtMs < seen.pushedAtMs) return success(null);
    this.#store.note({ ...seen, pushedAtMs: sentAtMs });
    const found = await takeManifest({ ...asked, seen: { ...seen, pushedAtMs: sentAtMs } }, messageIn(body));
    if (found === undefined) return this.#refresh();
    await this.#report(asked, found);
    return success(null);
  }

  async call(
    owner: SourceOwner,
    { callId, ...call }: SourceCall,
    onProgress?: OnEdgeProgress,
  ): Promise<EdgeOutcome> {
    this.#store.own(owner);
    const held = await this.#hold();
    if (held === undefined) return edgeFailure('SourceUnavailable', 'the source is gone');
    if (held.source.disabled) return edgeFailure('SourceUnavailable', 'the source is disabled');
    if (onProgress === undefined) return held.connections.call(callId, call);
    // It is a call into another isolate, which may be gone by then.
    const tell = async (progress: EdgeProgress) => onProgress(progress);
    let telling: Promise<void> = Promise.resolve();
    const report = (progress: EdgeProgress) => {
      telling = tell(progress).catch(() => undefined);
    };
    const outcome = await held.connections.call(callId, { ...call, onProgress: report });
    // The answer must not overtake it.
    await telling;
    return outcome;
  }

  /** The files that are in the sandbox of its server before it starts; only this Worker can send this request. */
  override async fetch(request: Request): Promise<Response> {
    const owner = archiveOwnerOf(request);
    this.#store.own(owner);
    const taken = await takeArchive(this.#store, request.body, () => this.#mayKeepArchive());
    if (!taken.ok) return Response.json(taken, { status: ERRORS[taken.code].status });
    const bytes = taken.value;
    const asked = await this.#asked();
    if (asked !== undefined) {
      const { revision } = asked;
      const state = { archive_bytes: bytes === 0 ? null : bytes };
      await this.#catalogue().reportSource(owner.source, { revision, state });
    }
    await this.changed(owner);
    return Response.json({ bytes });
  }

  /** As the source is when all of the archive is there. */
  async #mayKeepArchive(): Promise<Outcome<null>> {
    const asked = await this.#asked();
    if (asked === undefined) return failure('not_found', 'no such tool source');
    return archiveFault(asked.source) ?? success(null);
  }

  async cancel(callId: string): Promise<void> {
    (await this.#held)?.connections.cancel(callId);
  }

  async removed(): Promise<Outcome<null>> {
    await this.#forget();
    await this.#store.clear();
    return success(null);
  }

  override async alarm(): Promise<void> {
    try {
      await this.#refresh();
    } catch (error: unknown) {
      logWarning('source_refresh_failed', { detail: messageOf(error) });
      await this.ctx.storage.setAlarm(nextPollAtMs({ intervalMs: 60_000, failures: 1 }, Date.now()));
    }
  }

  /** What began before may have been answered before: it is waited for, and it is asked again. */
  async #refresh(): Promise<Outcome<null>> {
    await this.#refreshing;
    this.#refreshing ??= this.#ask().finally(() => {
      this.#refreshing = undefined;
    });
    return this.#refreshing;
  }

  async #ask(): Promise<Outcome<null>> {
    const asked = await this.#asked();
    if (asked === undefined) {
      await this.#store.clear();
      return failure('not_found', 'no such tool source');
    }
    const { source } = asked;
    if (source.disabled) {
      await this.#report(asked, { state: { status: 'disabled', next_poll_at: null }, seen: asked.seen });
      return success(null);
    }
    try {
      const found = source.kind === 'manifest' ? await askManifest(asked) : await this.#askServer(asked);
      await this.#report(asked, found);
    } catch (error: unknown) {
      await this.#report(asked, failed(asked, messageOfFault(error)));
    }
    return success(null);
  }

  async #askServer(asked: Asked): Promise<Found> {
    const held = await this.#hold();
    if (held === undefined) throw new Error('the source is gone');
    return askServer(asked, await held.connections.list());
  }

  async #report(asked: Asked, { state, tools, seen }: Found): Promise<void> {
    const { revision, source } = asked;
    const changes = this.#changes;
    const { failures } = seen;
    const intervalMs = source.disabled ? null : pollIntervalMs(source, failures);
    const atMs = intervalMs === null ? null : nextPollAtMs({ intervalMs, failures }, Date.now());
    const polled = { ...state, next_poll_at: atMs === null ? null : new Date(atMs).toISOString() };
    const report = { revision, state: polled, ...(tools === undefined ? {} : { tools }) };
    const taken = await this.#catalogue().reportSource(source.name, report);
    // Another definition is there by now, and has set its own alarm.
    if (!taken.ok) return;
    this.#store.note(seen);
    if (changes !== this.#changes) return;
    if (atMs === null) await this.ctx.storage.deleteAlarm();
    else await this.ctx.storage.setAlarm(atMs);
  }

  async #asked(): Promise<Asked | undefined> {
    const { owner } = this.#store;
    if (owner === undefined) return undefined;
    const stored = await this.#catalogue().getSource(owner.source);
    if (!stored.ok) return undefined;
    const configuration = await configurationOf(this.env);
    return {
      ...stored.value,
      tenant: owner.tenant,
      secrets: await this.#secrets(configuration, stored.value),
      seen: this.#store.seen(stored.value.revision),
      configuration,
    };
  }

  #hold(): Promise<Held | undefined> {
    this.#held ??= this.#load();
    return this.#held;
  }

  async #load(): Promise<Held | undefined> {
    const asked = await this.#asked();
    if (asked === undefined) return undefined;
    // Its client for MCP takes a while to start: no other request waits for that.
    const { serverConnections } = await import('./server-connections.ts');
    const store = this.#store;
    const connections = serverConnections(asked, {
      env: this.env,
      archive: () => archiveStream(store),
      kept: store,
      waitUntil: (promise) => this.ctx.waitUntil(promise),
      onListChanged: () => void this.ctx.storage.setAlarm(Date.now() + LIST_CHANGED_DELAY_MS),
    });
    return { source: asked.source, connections };
  }

  /** What is held was of a definition that is no more. */
  async #forget(): Promise<void> {
    const held = this.#held;
    this.#held = undefined;
    await (await held?.catch(() => undefined))?.connections.close();
  }

  async #secrets(configuration: Configuration, stored: StoredSource): Promise<Record<string, string>> {
    const { owner } = this.#store;
    if (stored.secrets === null || owner === undefined) return {};
    const holder = { tenant: owner.tenant, holder: secretsHolder(owner.source) };
    return openSecrets(configuration.secretsKey, holder, stored.secrets);
  }

  #catalogue() {
    const { owner } = this.#store;
    if (owner === undefined) throw new Error('the object does not know whose source it is');
    return this.env.CATALOGUE.getByName(owner.tenant);
  }
}

function failed({ seen }: Asked, message: string): Found {
  const state: Partial<SourceState> = {
    status: 'failed',
    last_error: { message, at: new Date().toISOString() },
  };
  return { state, seen: { ...seen, failures: seen.failures + 1 } };
}

/** Null where it is not asked by itself. */
function pollIntervalMs(source: ToolSource, failures: number): number | null {
  switch (source.kind) {
    case 'manifest':
      return source.url === undefined ? null : source.poll_interval_s * 1_000;
    case 'mcp_http':
      return source.poll_interval_s * 1_000;
    case 'mcp_stdio':
      // Each time it would need a sandbox; and it changes only with its files.
      return failures === 0 ? null : FAILED_SERVER_INTERVAL_MS;
  }
}

function messageIn(body: Uint8Array): unknown {
  try {
    return parseManifest(body);
  } catch {
    return undefined;
  }
}
