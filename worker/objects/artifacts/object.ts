/** The artifacts of one tenant: which there are, what they take, and the end of those that are removed or too old. */
import { DurableObject } from 'cloudflare:workers';
import { type Artifact, type ArtifactList, MAX_ARTIFACT_URL_LIFETIME_S } from '../../../shared/artifact.ts';
import { failure, type Outcome, success } from '../../../shared/errors.ts';
import { artifactObjectKey } from '../../artifacts/place.ts';
import { MAX_STORING_MS } from '../../content/sealed-object.ts';
import type { Env } from '../../env.ts';
import { earliest } from '../earliest.ts';
import { logWarning, messageOf } from '../log.ts';
import { ringBy } from '../ring-by.ts';
import { StorageBook } from '../storage-book.ts';
import type { ArtifactsPort, NewArtifact } from './port.ts';
import { ArtifactsStore, artifactView } from './store.ts';

/** Of one tenant, those that are being made included. */
const MAX_ARTIFACTS = 10_000;
/** An upload that has not ended by then never will. */
const STALE_AFTER_MS = MAX_STORING_MS + 1_800_000;
/** By then no address for an upload lives that was good for this id. */
const SWEPT_KEPT_MS = 2 * MAX_ARTIFACT_URL_LIFETIME_S * 1_000;
const SWEEP_AT_ONCE = 100;
const SWEEP_RETRY_MS = 30_000;
const DAY_MS = 86_400_000;

export class ArtifactsObject extends DurableObject<Env> implements ArtifactsPort {
  readonly #store: ArtifactsStore;
  readonly #book: StorageBook;

  constructor(ctx: DurableObjectState, env: Env) {
    super(ctx, env);
    this.#store = new ArtifactsStore(ctx.storage);
    this.#book = new StorageBook(env);
  }

  async begin(artifact: NewArtifact): Promise<Outcome<null>> {
    const { artifactId, tenant, subject, maxBytes } = artifact;
    if (this.#store.has(artifactId)) return notFound();
    const count = this.#store.count();
    if (count >= MAX_ARTIFACTS) return failure('quota_exceeded', `${count} artifacts are kept`);
    const nowMs = Date.now();
    this.#store.add(artifact, nowMs);
    await ringBy(this.ctx.storage, nowMs + STALE_AFTER_MS);
    const held = await this.#book.hold(tenant, { id: holdId(artifactId), subject, bytes: maxBytes });
    if (held.ok) this.#store.markTold(artifactId, maxBytes);
    else this.#store.delete(artifactId);
    return held;
  }

  async complete(stored: { artifactId: string; bytes: number; sha256: string }): Promise<Outcome<Artifact>> {
    const row = this.ctx.storage.transactionSync(() => this.#store.complete(stored, Date.now()));
    if (row === undefined) return failure('transfer_failed', 'the artifact took too long to be stored');
    await this.#tellTenant();
    await ringBy(this.ctx.storage, Date.now());
    return success(artifactView(row));
  }

  async abandon(artifactId: string): Promise<Outcome<null>> {
    this.#store.remove(artifactId);
    await ringBy(this.ctx.storage, Date.now());
    return success(null);
  }

  async find(subject: string, name: string): Promise<Outcome<Artifact>> {
    const row = this.#store.find(subject, name);
    return row === undefined ? notFound() : success(artifactView(row));
  }

  async list(input: { subject: string; after: string; limit: number }): Promise<Outcome<ArtifactList>> {
    const found = this.#store.list(input.subject, input.after, input.limit + 1);
    const shown = found.slice(0, input.limit);
    return success({
      artifacts: shown.map(artifactView),
      next_cursor: found.length > shown.length ? (shown.at(-1)?.name ?? null) : null,
    });
  }

  async remove(subject: string, name: string): Promise<Outcome<null>> {
    const row = this.#store.find(subject, name);
    if (row === undefined) return notFound();
    this.#store.remove(row.artifact_id);
    await ringBy(this.ctx.storage, Date.now());
    return success(null);
  }

  override async alarm(): Promise<void> {
    const nowMs = Date.now();
    await this.ctx.storage.setAlarm(nowMs + SWEEP_RETRY_MS);
    this.#store.removeBefore('making', nowMs - STALE_AFTER_MS);
    const keptMs = await this.#keptMs();
    if (keptMs !== null) this.#store.removeBefore('ready', nowMs - keptMs);
    const removed = this.#store.removed(SWEEP_AT_ONCE);
    const keys = removed.map(({ tenant, artifact_id }) => artifactObjectKey(tenant, artifact_id));
    if (keys.length > 0) await this.env.CONTENT.delete(keys);
    for (const { artifact_id } of removed) this.#store.markSwept(artifact_id, nowMs);
    const isTold = await this.#tellTenant();
    this.#store.deleteSweptBefore(nowMs - SWEPT_KEPT_MS);
    if (removed.length === SWEEP_AT_ONCE) return this.ctx.storage.setAlarm(Date.now());
    const nextMs = isTold ? this.#nextMs(keptMs) : nowMs;
    if (nextMs === null) await this.ctx.storage.deleteAlarm();
    else await this.ctx.storage.setAlarm(Math.max(nextMs, nowMs + SWEEP_RETRY_MS));
  }

  #nextMs(keptMs: number | null): number | null {
    const [making, ready, swept] = [
      this.#store.oldest('making'),
      this.#store.oldest('ready'),
      this.#store.oldestSwept(),
    ];
    const nowMs = Date.now();
    // What a tenant wants kept for how long may change: it is asked once a day.
    const lookMs = ready === null ? null : Math.min(nowMs + DAY_MS, ready + (keptMs ?? DAY_MS * 3_650));
    const moments = [
      making === null ? null : making + STALE_AFTER_MS,
      lookMs,
      swept === null ? null : swept + SWEPT_KEPT_MS,
    ];
    return earliest(moments);
  }

  /** How long the tenant wants artifacts kept; null where it says nothing, or nothing was heard. */
  async #keptMs(): Promise<number | null> {
    const tenant = this.#store.tenant();
    if (tenant === undefined) return null;
    try {
      const said = await this.env.TENANT.getByName(tenant).retention();
      const days = said.ok ? said.value.artifacts_days : null;
      return days === null ? null : days * DAY_MS;
    } catch (error: unknown) {
      logWarning('retention_not_known', { detail: messageOf(error) });
      return null;
    }
  }

  #tellTenant(): Promise<boolean> {
    return this.#book.tell(this.#store, holdId, SWEEP_AT_ONCE);
  }
}

function holdId(artifactId: string): string {
  return `artifact:${artifactId}`;
}

function notFound(): Outcome<never> {
  return failure('not_found', 'no such artifact, or not yours');
}
