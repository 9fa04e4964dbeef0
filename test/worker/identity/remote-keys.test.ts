import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import {
  JWKS_COOLDOWN_MS,
  JWKS_LAST_GOOD_MS,
  JWKS_MAX_AGE_MS,
  JWKS_RETRY_MS,
  RemoteKeys,
} from '../../../worker/identity/remote-keys.ts';
import { importVerificationKey } from '../../../worker/identity/verification-key.ts';
import { nowS, privateJwk, publicJwk, tokenOf } from '../fixture-issuer.ts';
import { api, request } from '../harness/api.ts';

const URL_OF_KEYS = 'https://issuer.test/keys';

/** An issuer on a clock of its own: what it publishes, how it fails, and how often it was asked. */
class FakeIssuer {
  nowMs = 1_000_000;
  published: unknown[] = [];
  failing: 'no' | 'status' | 'network' | 'garbage' | 'redirect' | 'huge' = 'no';
  asked: { url: string; init: RequestInit }[] = [];
  readonly keys = new RemoteKeys(
    new URL(URL_OF_KEYS),
    (jwk) => importVerificationKey(jwk, new Set(['Ed25519'])),
    { nowMs: () => this.nowMs, fetch: (url, init) => this.#answer(url, init) },
  );

  async lookup(keyId: string): Promise<string> {
    return (await this.keys.keyFor(keyId, () => {})).found;
  }

  async #answer(url: string, init: RequestInit): Promise<Response> {
    this.asked.push({ url, init });
    switch (this.failing) {
      case 'no':
        return Response.json({ keys: this.published });
      case 'status':
        return Response.json({ keys: this.published }, { status: 500 });
      case 'network':
        throw new TypeError('connection refused');
      case 'garbage':
        return new Response('<html>');
      case 'redirect':
        return new Response(null, { status: 302, headers: { Location: 'https://evil.test/keys' } });
      case 'huge':
        return new Response('x'.repeat(300_000));
    }
  }
}

const named = (kid: string) => ({ ...publicJwk('ed'), kid });
let issuer: FakeIssuer;

beforeEach(() => {
  issuer = new FakeIssuer();
  issuer.published = [named('k1')];
  vi.spyOn(console, 'warn').mockImplementation(() => {});
});
afterEach(() => {
  vi.restoreAllMocks();
  vi.useRealTimers();
});

describe('keys at a URL', () => {
  test('are fetched once for many tokens, without following redirects', async () => {
    for (let count = 0; count < 20; count += 1) expect(await issuer.lookup('k1')).toBe('key');
    expect(issuer.asked).toHaveLength(1);
    expect(issuer.asked[0]?.url).toBe(URL_OF_KEYS);
    expect(issuer.asked[0]?.init.redirect).toBe('manual');
  });

  test('are fetched once for tokens that come at the same moment', async () => {
    const found = await Promise.all(Array.from({ length: 50 }, () => issuer.lookup('k1')));
    expect(new Set(found)).toEqual(new Set(['key']));
    expect(issuer.asked).toHaveLength(1);
  });

  test('that are new are found at the first try, right after the set was fetched', async () => {
    await issuer.lookup('k1');
    issuer.published = [named('k1'), named('k2')];
    issuer.nowMs += 1_000;
    expect(await issuer.lookup('k2')).toBe('key');
    expect(issuer.asked).toHaveLength(2);
  });

  test.each([
    ['a warm set', true],
    ['no set yet', false],
  ])('are not asked for by 1,000 unknown key ids more than once in 30 s, with %s', async (_name, warm) => {
    if (warm) await issuer.lookup('k1');
    const before = issuer.asked.length;
    for (let count = 0; count < 1_000; count += 1) {
      issuer.nowMs += JWKS_COOLDOWN_MS / 1_000 - 1;
      expect(await issuer.lookup(`unknown${count}`)).toBe('unknown');
    }
    expect(issuer.asked.length - before).toBe(1);
    issuer.nowMs += JWKS_COOLDOWN_MS;
    await issuer.lookup('unknown');
    expect(issuer.asked.length - before).toBe(2);
  });

  test('are fetched again when they are old, and a key that was dropped is gone then', async () => {
    await issuer.lookup('k1');
    issuer.published = [named('k2')];
    issuer.nowMs += JWKS_MAX_AGE_MS - 1;
    expect(await issuer.lookup('k1')).toBe('key');
    issuer.nowMs += 1;
    expect(await issuer.lookup('k1')).toBe('unknown');
    expect(await issuer.lookup('k2')).toBe('key');
  });

  test.each(['status', 'network', 'garbage', 'redirect', 'huge'] as const)(
    'serve on for a day while the issuer fails (%s), which is asked at most every 30 s',
    async (failing) => {
      await issuer.lookup('k1');
      issuer.failing = failing;
      expect(await issuer.lookup('k9')).toBe('unknown');
      expect(await issuer.lookup('k1')).toBe('key');
      issuer.nowMs += JWKS_MAX_AGE_MS;
      const before = issuer.asked.length;
      for (let count = 0; count < 20; count += 1) expect(await issuer.lookup('k1')).toBe('key');
      expect(issuer.asked.length - before).toBe(1);
      issuer.nowMs += JWKS_LAST_GOOD_MS - JWKS_MAX_AGE_MS - 1;
      expect(await issuer.lookup('k1')).toBe('key');
      issuer.nowMs += 1;
      expect(await issuer.lookup('k1')).toBe('unavailable');
    },
  );

  test('are unavailable while a first fetch fails, and there soon after it works', async () => {
    issuer.failing = 'network';
    for (let count = 0; count < 5; count += 1) expect(await issuer.lookup('k1')).toBe('unavailable');
    expect(issuer.asked).toHaveLength(1);
    issuer.failing = 'no';
    issuer.nowMs += JWKS_RETRY_MS;
    expect(await issuer.lookup('k1')).toBe('key');
  });

  test('are used only where they can verify and nothing else', async () => {
    issuer.published = [
      named('k1'),
      { ...named('symmetric'), kty: 'oct', k: 'AAAA' },
      { ...named('leaked'), d: privateJwk('ed').d },
      { ...named('encryption'), use: 'enc' },
      { ...named('signing'), key_ops: ['sign'] },
      { ...named('other-algorithm'), alg: 'ES256' },
      { ...named('small-order'), x: 'AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA' },
      { ...publicJwk('rsa'), kid: 'rsa' },
      { ...named('with space') },
      'text',
      null,
    ];
    expect(await issuer.lookup('k1')).toBe('key');
    const refused = ['symmetric', 'leaked', 'encryption', 'signing', 'other-algorithm', 'small-order', 'rsa'];
    for (const keyId of [...refused, 'with space']) expect(await issuer.lookup(keyId)).toBe('unknown');
  });
});

describe('A09: the gateway', () => {
  test('asks the issuer once for 1,000 unknown key ids, and accepts the known one', async () => {
    const fetched = vi
      .spyOn(globalThis, 'fetch')
      .mockImplementation(async () => Response.json({ keys: [publicJwk('remote')] }));
    // However slow the machine is, no time passes that would allow another fetch.
    vi.useFakeTimers({ toFake: ['Date'], now: Date.now() });
    const claims = { iss: 'https://remote.test' };
    const good = await tokenOf({ key: 'remote', claims });
    expect((await api('GET', '/v1/sessions', { token: good })).status).toBe(200);
    expect(fetched).toHaveBeenCalledTimes(1);
    for (let count = 0; count < 1_000; count += 1) {
      const token = await tokenOf({ key: 'remote', claims, header: { kid: `unknown${count}` } });
      expect((await request('GET', '/v1/sessions', { token })).status).toBe(401);
    }
    expect(fetched).toHaveBeenCalledTimes(2);
    expect((await api('GET', '/v1/sessions', { token: good })).status).toBe(200);
  });
});

describe('F25: an issuer that fails for an hour', () => {
  const claims = () => ({ iss: 'https://remote.test', exp: nowS() + 600 });
  const ask = async (kid = 'remote') =>
    request('GET', '/v1/sessions', {
      token: await tokenOf({ key: 'remote', claims: claims(), header: { kid } }),
    });
  let startMs = Date.now() + 3_600_000;

  test.each([
    ['does not answer', async () => Promise.reject(new TypeError('down'))],
    ['answers with an error', async () => Response.json({ keys: [publicJwk('remote')] }, { status: 503 })],
    ['gives a page', async () => new Response('<html>')],
    ['gives keys of another shape', async () => Response.json({ keys: 'none' })],
    ['gives no key', async () => Response.json({ keys: [] })],
    [
      'gives keys that cannot verify',
      async () => Response.json({ keys: [{ kty: 'oct', k: 'c2VjcmV0', kid: 'remote' }] }),
    ],
  ])(
    'and %s: the last good keys serve on, an unknown one is refused, and each failure is told',
    async (_name, fail) => {
      const publish = async () => Response.json({ keys: [publicJwk('remote')] });
      const fetched = vi.spyOn(globalThis, 'fetch').mockImplementation(publish);
      const warned = vi.spyOn(console, 'warn').mockImplementation(() => {});
      startMs += 4 * 3_600_000;
      vi.useFakeTimers({ toFake: ['Date'], now: startMs });
      expect((await ask()).status).toBe(200);
      fetched.mockClear();
      fetched.mockImplementation(fail);
      for (let minute = 1; minute <= 60; minute += 1) {
        vi.setSystemTime(startMs + minute * 60_000);
        expect((await ask()).status, `minute ${minute}`).toBe(200);
        if (minute % 10 === 0) expect((await ask(`unknown-${minute}`)).status).toBe(401);
      }
      const asked = fetched.mock.calls.length;
      expect(asked).toBeGreaterThan(10);
      expect(asked).toBeLessThanOrEqual(120);
      const alerts = warned.mock.calls.filter(([line]) => String(line).includes('jwks_fetch_failed'));
      expect(alerts).toHaveLength(asked);
      fetched.mockImplementation(publish);
      vi.setSystemTime(startMs + 62 * 60_000);
      expect((await ask()).status).toBe(200);
    },
  );
});
