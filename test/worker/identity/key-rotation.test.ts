import { afterEach, describe, expect, test, vi } from 'vitest';
import { JWKS_MAX_AGE_MS } from '../../../worker/identity/remote-keys.ts';
import { REMEMBERED_MS } from '../../../worker/identity/verified-tokens.ts';
import { publicJwk, tokenOf } from '../fixture-issuer.ts';
import { api } from '../harness/api.ts';

describe('A24: the gateway', () => {
  afterEach(() => {
    vi.useRealTimers();
    vi.restoreAllMocks();
  });

  test('refuses a key that was rotated out within a minute, and takes the new one with no deploy', async () => {
    let published = [publicJwk('remote')];
    vi.spyOn(globalThis, 'fetch').mockImplementation(async () => Response.json({ keys: published }));
    const exp = Math.floor(Date.now() / 1_000) + 3_600;
    const claims = { iss: 'https://remote.test', exp };
    const old = await tokenOf({ key: 'remote', claims });
    const fresh = await tokenOf({ key: 'other', claims });
    const status = async (token: string) => (await api('GET', '/v1/sessions', { token })).status;
    vi.useFakeTimers({ toFake: ['Date'], now: Date.now() });
    expect(await status(old)).toBe(200);
    expect(await status(fresh)).toBe(401);
    published = [publicJwk('other')];
    vi.setSystemTime(Date.now() + 60_000);
    expect(await status(old)).toBe(401);
    expect(await status(fresh)).toBe(200);
  });

  test('remembers keys and tokens for less than a minute, both together', () => {
    expect(JWKS_MAX_AGE_MS + REMEMBERED_MS).toBeLessThan(60_000);
  });
});
