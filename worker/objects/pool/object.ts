/** The pool object: who may join as a host, which hosts there are, and which of them takes a new session. */
import { DurableObject } from 'cloudflare:workers';
import { sha256Hex } from '../../../shared/digest.ts';
import { failure, type Outcome, success } from '../../../shared/errors.ts';
import type { ListedEnrollmentToken } from '../../../shared/host-api.ts';
import { ATTACH_TIMEOUT_MS, ENROLLMENT_TOKEN_LIFETIME_S } from '../../../shared/limits.ts';
import { configurationOf } from '../../configuration.ts';
import type { Env } from '../../env.ts';
import { enrollHost } from './enrollment.ts';
import { newEnrollmentToken } from './enrollment-token.ts';
import { type TokenPosition, tokenIdOf } from './enrollment-token-store.ts';
import { newNonce } from './nonce.ts';
import { operatorView, summaryOf } from './operator-view.ts';
import { choosePlacement, isRestorable, mayRestore } from './placement.ts';
import type {
  Enroll,
  Enrolled,
  EnrollmentToken,
  HostReport,
  OperatorFault,
  OperatorHost,
  Placed,
  PlacementWish,
  PoolPort,
  RestoreWish,
} from './port.ts';
import { type HostRow, PoolStore } from './store.ts';

const MAX_LIVE_TOKENS = 10_000;

export class PoolObject extends DurableObject<Env> implements PoolPort {
  readonly #store: PoolStore;

  constructor(ctx: DurableObjectState, env: Env) {
    super(ctx, env);
    this.#store = new PoolStore(ctx.storage);
  }

  async createEnrollmentToken({ pool }: { pool: string }): Promise<Outcome<EnrollmentToken>> {
    const nowMs = Date.now();
    const { tagKey } = await configurationOf(this.env);
    const token = await newEnrollmentToken(tagKey, pool);
    const expiresAtMs = nowMs + ENROLLMENT_TOKEN_LIFETIME_S * 1000;
    const sha256 = await sha256Hex(token);
    if (this.#store.tokens.liveCount(nowMs) >= MAX_LIVE_TOKENS) {
      return failure('overloaded', `${MAX_LIVE_TOKENS} enrolment tokens are live`);
    }
    this.#store.tokens.add({ sha256, pool, expiresAtMs });
    const expiresAt = new Date(expiresAtMs).toISOString();
    return success({ token_id: tokenIdOf(sha256), enrollment_token: token, pool, expires_at: expiresAt });
  }

  async listEnrollmentTokens(page: {
    after: TokenPosition | undefined;
    limit: number;
  }): Promise<Outcome<ListedEnrollmentToken[]>> {
    return success(this.#store.tokens.list(page, Date.now()));
  }

  async revokeEnrollmentToken(tokenId: string): Promise<Outcome<ListedEnrollmentToken>> {
    const token = this.#store.tokens.revoke(tokenId, Date.now());
    return token === undefined
      ? failure('not_found', 'no such enrolment token in this pool')
      : success(token);
  }

  async challenge(): Promise<Outcome<{ nonce: string }>> {
    const { tagKey } = await configurationOf(this.env);
    return success({ nonce: await newNonce(tagKey, Date.now()) });
  }

  async enroll(input: Enroll): Promise<Outcome<Enrolled>> {
    return enrollHost(input, this.#store, await configurationOf(this.env));
  }

  async place({ sessionId, ...wish }: PlacementWish & { sessionId: string }): Promise<Outcome<Placed>> {
    const nowMs = Date.now();
    this.#store.removePlacementsBefore(nowMs - ATTACH_TIMEOUT_MS);
    const hosts = this.#store.hosts(sessionId);
    const placement = choosePlacement(hosts, wish, Math.random);
    if (!placement.ok) return placement;
    this.#store.addPlacement({ sessionId, hostId: placement.value.hostId }, nowMs);
    return success({ ...placement.value, hosts: hosts.length });
  }

  async mayRestore(wish: RestoreWish): Promise<boolean> {
    return mayRestore(this.#store.hosts(), wish);
  }

  async isRestorable(wish: RestoreWish): Promise<boolean> {
    return isRestorable(this.#store.hosts(), wish);
  }

  async picture(): Promise<Outcome<HostRow[]>> {
    this.#store.removePlacementsBefore(Date.now() - ATTACH_TIMEOUT_MS);
    return success(this.#store.hosts());
  }

  async placed({ sessionId }: { sessionId: string }): Promise<Outcome<null>> {
    this.#store.removePlacement(sessionId);
    return success(null);
  }

  async listHosts(): Promise<Outcome<OperatorHost[]>> {
    return success(this.#store.hosts().map(operatorView));
  }

  async summary(): Promise<Outcome<ReturnType<typeof summaryOf>>> {
    return success(summaryOf(this.#store.hosts()));
  }

  async revokeHost({ hostId }: { hostId: string }): Promise<Outcome<null>> {
    return this.#store.revokeHost(hostId, Date.now()) ? success(null) : noSuchHost();
  }

  async markHost({
    hostId,
    faults,
  }: {
    hostId: string;
    faults: Partial<Record<OperatorFault, boolean>>;
  }): Promise<Outcome<OperatorHost>> {
    for (const fault of ['cordoned', 'draining'] as const) {
      const isThere = faults[fault];
      if (isThere !== undefined) this.#store.setFault(hostId, fault, isThere);
    }
    const host = this.#store.hosts().find(({ host_id }) => host_id === hostId);
    return host === undefined ? noSuchHost() : success(operatorView(host));
  }

  async reportHost(report: HostReport): Promise<{ hosts: number }> {
    this.#store.report(report);
    return { hosts: this.#store.hostCount };
  }

  async distrustHost({ hostId }: { hostId: string }): Promise<void> {
    this.#store.setFault(hostId, 'receipts_refused', true);
  }
}

function noSuchHost(): Outcome<never> {
  return failure('not_found', 'no such host in this pool');
}
