import { createExecutionContext } from 'cloudflare:test';
import { env } from 'cloudflare:workers';
import { describe, expect, test, vi } from 'vitest';
import { generatePrivateJwk } from '../../shared/ed25519.ts';
import { liveKeys, verifyKeySet } from '../../shared/key-set.ts';
import { createApp } from '../../worker/app.ts';
import { ConfigurationError, configurationOf, readConfiguration } from '../../worker/configuration.ts';
import type { Env } from '../../worker/env.ts';
import { privateJwk, publicJwk } from './fixture-issuer.ts';

/** Without what is optional. */
const { AI: _ai, REPAIR_MODELS: _models, ...bound } = env;
const base: Env = bound;

const issuer = {
  issuer: 'https://a.test',
  audience: 'https://edge.test',
  jwks: { keys: [publicJwk('ed')] },
  algorithms: ['Ed25519'],
};
const { jwks: _, ...keyless } = issuer;
const jwk = JSON.stringify(await generatePrivateJwk());
const foreignPublicPart = JSON.stringify({
  ...(await generatePrivateJwk()),
  d: (await generatePrivateJwk()).d,
});

const INNER = 'http://models.internal:8080/v1/embeddings';
const embeddings = (more: object): string =>
  JSON.stringify({ kind: 'openai', url: 'https://models.example.com/v1/embeddings', model: 'm', ...more });

describe('a configuration', () => {
  test('has embeddings only where it names them, at an inner address only where that is allowed', async () => {
    expect((await readConfiguration(base)).embeddings).toBeNull();
    const open: Env = { ...base, EMBEDDINGS: embeddings({}), EMBEDDINGS_KEY: 'k' };
    expect((await readConfiguration(open)).embeddings).toMatchObject({
      settings: { min_cosine: 0.3, query_timeout_ms: 300 },
      key: 'k',
    });
    const HTTP_TOOL_ORIGINS = JSON.stringify([new URL(INNER).origin]);
    const inner: Env = { ...base, EMBEDDINGS: embeddings({ url: INNER }), HTTP_TOOL_ORIGINS };
    expect((await readConfiguration(inner)).embeddings).toMatchObject({ settings: { url: INNER } });
  });

  test('that is whole gives its keys, and a key set that its root key signed', async () => {
    const configuration = await readConfiguration(base);
    const keySet = await verifyKeySet(configuration.signedKeySet, configuration.root.publicKey, 1);
    expect(keySet.ok && keySet.value).toEqual(configuration.keySet);
    expect([...(await liveKeys(configuration.keySet.grant_keys, 0)).keys()]).toEqual([
      configuration.grant.keyId,
    ]);
    expect(configuration.grant.privateKey.extractable).toBe(false);
  });

  test('is read once per isolate', () => {
    expect(configurationOf(base)).toBe(configurationOf(base));
  });

  test.each<[string, Partial<Env>, RegExp]>([
    ['an origin with a path', { EDGE_ORIGIN: 'https://edge.test/' }, /^EDGE_ORIGIN/],
    ['a public origin without TLS', { EDGE_ORIGIN: 'http://edge.test' }, /^EDGE_ORIGIN/],
    ['a key that is not JSON', { GRANT_KEY: 'x' }, /^GRANT_KEY is not JSON/],
    ['a key without its private part', { GRANT_KEY: JSON.stringify(publicJwk('ed')) }, /^GRANT_KEY\.d/],
    ['a key of two halves', { RECEIPT_KEY: foreignPublicPart }, /^RECEIPT_KEY: the public part/],
    ['one key for two purposes', { GRANT_KEY: jwk, RECEIPT_KEY: jwk }, /three different keys/],
    ['a key set without a version', { KEY_SET_VERSION: '0' }, /^KEY_SET_VERSION/],
    ['a short secret', { ID_SECRET: 'AAAA' }, /^ID_SECRET/],
    ['an operator token in the clear', { OPERATOR_TOKEN_SHA256: 'secret' }, /^OPERATOR_TOKEN_SHA256/],
    ['pools without the default one', { POOLS: '["other"]' }, /^POOLS/],
    [
      'a lateness of nothing',
      { OVERLOAD_LATE_MS: '0' },
      /^OVERLOAD_LATE_MS: must be a whole number of milliseconds/,
    ],
    ['no rate', { TENANT_REQUESTS_PER_MINUTE: '0' }, /^TENANT_REQUESTS_PER_MINUTE/],
    ['issuers that are not JSON', { ISSUERS: '{' }, /^ISSUERS is not JSON/],
    ['an issuer twice', { ISSUERS: JSON.stringify([issuer, issuer]) }, /twice/],
    ['an issuer without keys', { ISSUERS: JSON.stringify([keyless]) }, /exactly one of jwks and jwks_url/],
    [
      'an issuer with both',
      { ISSUERS: JSON.stringify([{ ...issuer, jwks_url: 'https://a.test/k' }]) },
      /exactly one/,
    ],
    [
      'an algorithm that is none',
      { ISSUERS: JSON.stringify([{ ...issuer, algorithms: ['none'] }]) },
      /algorithms/,
    ],
    [
      'a symmetric algorithm',
      { ISSUERS: JSON.stringify([{ ...issuer, algorithms: ['HS256'] }]) },
      /algorithms/,
    ],
    [
      'a private key of an issuer',
      { ISSUERS: JSON.stringify([{ ...issuer, jwks: { keys: [privateJwk('ed')] } }]) },
      /not usable/,
    ],
    [
      'a key of another algorithm',
      { ISSUERS: JSON.stringify([{ ...issuer, algorithms: ['RS256'] }]) },
      /not usable/,
    ],
    [
      'an origin of HTTP tools with a path',
      { HTTP_TOOL_ORIGINS: '["https://a.test/x"]' },
      /HTTP_TOOL_ORIGINS/,
    ],
    ['models for repairs without Workers AI', { REPAIR_MODELS: '["m"]' }, /^REPAIR_MODELS needs/],
    ['models for repairs that are no list', { REPAIR_MODELS: '"m"' }, /^REPAIR_MODELS/],
    ['origins of HTTP tools that are no list', { HTTP_TOOL_ORIGINS: '"*"' }, /HTTP_TOOL_ORIGINS/],
    ['embeddings that are not JSON', { EMBEDDINGS: 'on' }, /^EMBEDDINGS is not JSON/],
    ['embeddings of no kind', { EMBEDDINGS: '{"kind":"x","model":"m"}' }, /^EMBEDDINGS\.kind/],
    ['embeddings with a field too much', { EMBEDDINGS: embeddings({ api_key: 'x' }) }, /^EMBEDDINGS/],
    [
      'embeddings at an inner address',
      { EMBEDDINGS: embeddings({ url: INNER }) },
      /^EMBEDDINGS\.url: .* https/,
    ],
    ['embeddings at the edge itself', { EMBEDDINGS: embeddings({ url: `${env.EDGE_ORIGIN}/x` }) }, /gateway/],
    ['Workers AI without its binding', { EMBEDDINGS: '{"kind":"workers-ai","model":"m"}' }, /binding AI/],
    ['an origin of webhooks with a path', { WEBHOOK_ORIGINS: '["https://a.test/x"]' }, /WEBHOOK_ORIGINS/],
    [
      'keys at a URL without TLS',
      { ISSUERS: JSON.stringify([{ ...keyless, jwks_url: 'http://a.test/k' }]) },
      /https/,
    ],
    [
      'keys at a URL with a password',
      { ISSUERS: JSON.stringify([{ ...keyless, jwks_url: 'https://u:p@a.test/k' }]) },
      /https/,
    ],
    [
      'keys at a loopback URL for a public edge',
      {
        EDGE_ORIGIN: 'https://edge.test',
        ISSUERS: JSON.stringify([{ ...keyless, jwks_url: 'http://127.0.0.1/k' }]),
      },
      /https/,
    ],
  ])('with %s is refused by the name of the binding', async (_name, change, message) => {
    const reading = readConfiguration({ ...base, ...change });
    await expect(reading).rejects.toBeInstanceOf(ConfigurationError);
    await expect(reading).rejects.toThrow(message);
  });

  test('may take keys from a loopback URL for a loopback edge', async () => {
    const issuers = [{ ...keyless, jwks_url: 'http://127.0.0.1:1/k' }];
    const configuration = await readConfiguration({ ...base, ISSUERS: JSON.stringify(issuers) });
    expect(configuration.issuers.size).toBe(1);
  });

  test('that is broken refuses every caller without its reason, and says it once in the log', async () => {
    const logged = vi.spyOn(console, 'error').mockImplementation(() => {});
    const broken: Env = { ...base, ID_SECRET: 'not-so-secret' };
    const app = createApp();
    for (let count = 0; count < 3; count += 1) {
      const response = await app.request('/v1/sessions', {}, broken, createExecutionContext());
      expect(response.status).toBe(500);
      expect(await response.text()).not.toContain('ID_SECRET');
    }
    expect(logged).toHaveBeenCalledTimes(1);
    expect(String(logged.mock.calls[0]?.[0])).toContain('ID_SECRET must be 32 bytes');
    expect(String(logged.mock.calls[0]?.[0])).not.toContain('not-so-secret');
    vi.restoreAllMocks();
  });
});
