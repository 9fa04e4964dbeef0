import { describe, expect, test } from 'vitest';
import type { TenantPrincipal } from '../../../worker/identity/principal.ts';
import { REMEMBERED_MS, VerifiedTokens } from '../../../worker/identity/verified-tokens.ts';

const NOW_MS = 1_800_000_000_000;

function principal(expiresAtMs = NOW_MS + 3_600_000): TenantPrincipal {
  return {
    kind: 'tenant',
    tenant: 'acme',
    subject: 'agent',
    client: 'cli',
    scopes: new Set(),
    toolPolicy: null,
    tokenId: 't',
    boundTo: null,
    issuedAtMs: 0,
    apiKeyId: null,
    expiresAtMs,
  };
}

describe('a verified token', () => {
  test('is known for a short while and then verified again', () => {
    const tokens = new VerifiedTokens();
    const caller = principal();
    tokens.remember('a', caller, NOW_MS);
    expect(tokens.find('a', NOW_MS + REMEMBERED_MS - 1)).toBe(caller);
    expect(tokens.find('a', NOW_MS + REMEMBERED_MS)).toBeUndefined();
    expect(tokens.find('a', NOW_MS)).toBeUndefined();
  });

  test('is never known past its own end', () => {
    const tokens = new VerifiedTokens();
    tokens.remember('a', principal(NOW_MS + 5), NOW_MS);
    expect(tokens.find('a', NOW_MS + 4)).toBeDefined();
    expect(tokens.find('a', NOW_MS + 5)).toBeUndefined();
    tokens.remember('b', principal(NOW_MS), NOW_MS);
    expect(tokens.find('b', NOW_MS)).toBeUndefined();
  });

  test('says nothing about any other text', () => {
    const tokens = new VerifiedTokens();
    tokens.remember('a.b.c', principal(), NOW_MS);
    for (const other of ['a.b.d', 'a.b.c ', 'A.b.c', '']) expect(tokens.find(other, NOW_MS)).toBeUndefined();
  });

  test('makes room for others: the number that is kept is bounded', () => {
    const tokens = new VerifiedTokens();
    for (let index = 0; index < 2_000; index += 1) tokens.remember(`t${index}`, principal(), NOW_MS);
    const kept = Array.from({ length: 2_000 }, (_, index) => tokens.find(`t${index}`, NOW_MS)).filter(
      Boolean,
    );
    expect(kept.length).toBe(512);
  });
});
