/** A tenant's API keys: who has one, and whether it may be exchanged for a token. */
import type * as z from 'zod';
import type { ApiKey, CreateApiKeySchema } from '../../../../shared/api-key.ts';
import { failure, type Outcome, success } from '../../../../shared/errors.ts';
import { constantTimeEqual } from '../../../../shared/ids.ts';
import { ToolPolicySchema } from '../../../../shared/tool-policy.ts';
import type { ApiKeyRow, ApiKeyStore } from './store.ts';

const MAX_KEYS = 1_000;
/** A key that is dead is shown for this long. */
const DEAD_SHOWN_MS = 30 * 86_400_000;

export class ApiKeys {
  readonly #store: ApiKeyStore;

  constructor(store: ApiKeyStore) {
    this.#store = store;
  }

  add(
    { keyId, sha256, key }: { keyId: string; sha256: string; key: z.output<typeof CreateApiKeySchema> },
    nowMs: number,
  ): Outcome<ApiKey> {
    this.#store.removeDeadBefore(nowMs - DEAD_SHOWN_MS);
    if (this.#store.count() >= MAX_KEYS) {
      return failure('quota_exceeded', `a tenant has at most ${MAX_KEYS} API keys`);
    }
    const row: ApiKeyRow = {
      key_id: keyId,
      sha256,
      subject: key.subject,
      scopes: key.scopes.join(' '),
      tool_policy: key.tool_policy === null ? null : JSON.stringify(key.tool_policy),
      name: key.name,
      created_at: nowMs,
      expires_at: key.expires_at === null ? null : Date.parse(key.expires_at),
      revoked_at: null,
      last_used_on: null,
    };
    this.#store.add(row);
    return success(viewOf(row));
  }

  list(): ApiKey[] {
    return this.#store.all().map(viewOf);
  }

  /** Whether there was one to revoke. */
  revoke(keyId: string, nowMs: number): boolean {
    const known = this.#store.find(keyId);
    if (known === undefined) return false;
    this.#store.revoke(keyId, nowMs);
    return true;
  }

  /** Those of a subject that may still be exchanged. */
  liveOf(subject: string, nowMs: number): string[] {
    return this.#store
      .all()
      .filter((row) => row.subject === subject && isLive(row, nowMs))
      .map(({ key_id }) => key_id);
  }

  /** Says the same of a key that is unknown, wrong, revoked or over. */
  use({ keyId, sha256 }: { keyId: string; sha256: string }, nowMs: number): Outcome<ApiKey> {
    const row = this.#store.find(keyId);
    if (row === undefined || !constantTimeEqual(row.sha256, sha256) || !isLive(row, nowMs)) return refused();
    const today = new Date(nowMs).toISOString().slice(0, 10);
    if (row.last_used_on !== today) this.#store.usedOn(keyId, today);
    return success(viewOf(row));
  }
}

export function refused(): Outcome<never> {
  return failure('unauthenticated', 'the API key is unknown, revoked or expired');
}

function isLive({ revoked_at, expires_at }: ApiKeyRow, nowMs: number): boolean {
  return revoked_at === null && (expires_at === null || nowMs < expires_at);
}

function viewOf(row: ApiKeyRow): ApiKey {
  const time = (ms: number | null) => (ms === null ? null : new Date(ms).toISOString());
  return {
    key_id: row.key_id,
    subject: row.subject,
    scopes: row.scopes.split(' '),
    tool_policy: row.tool_policy === null ? null : ToolPolicySchema.parse(JSON.parse(row.tool_policy)),
    name: row.name,
    created_at: new Date(row.created_at).toISOString(),
    expires_at: time(row.expires_at),
    revoked_at: time(row.revoked_at),
    last_used_on: row.last_used_on,
  };
}
