/** Issuers of the tests, with keys of this run: their public parts as configuration, the private ones to sign with. */
import { exportJWK, generateKeyPair } from 'jose';

export const ORIGIN = 'http://127.0.0.1:8787';
export const OPERATOR_TOKEN = 'operator-token-of-the-tests';
export const TENANTS_OF_OTHER_ISSUER = ['other-tenant'];

const ALGORITHMS = { ed: 'Ed25519', ec: 'ES256', rsa: 'RS256' } as const;

async function keyPair(kid: string, alg: string) {
  const pair = await generateKeyPair(alg, { extractable: true });
  return {
    publicJwk: { ...(await exportJWK(pair.publicKey)), kid, alg, use: 'sig' },
    privateJwk: { ...(await exportJWK(pair.privateKey)), kid, alg },
  };
}

/** Low enough that a test can reach it. */
const REQUESTS_PER_MINUTE = '1200';

/** `ISSUERS` for the Worker, `TEST_ISSUER_KEYS` (private JWKs by key id) for the tests in the same isolate. */
export async function issuerBindings(): Promise<Record<string, string>> {
  const main = await Promise.all(Object.entries(ALGORITHMS).map(([kid, alg]) => keyPair(kid, alg)));
  const other = await keyPair('other', 'Ed25519');
  const remote = await keyPair('remote', 'Ed25519');
  const issuers = [
    {
      issuer: 'https://issuer.test',
      audience: ORIGIN,
      jwks: { keys: main.map((pair) => pair.publicJwk) },
      algorithms: Object.values(ALGORITHMS),
      tenant_claim: 'tenant',
    },
    {
      issuer: 'https://other.test',
      audience: ORIGIN,
      jwks: { keys: [other.publicJwk] },
      algorithms: ['Ed25519'],
      tenant_claim: 'https://other.test/organisation',
      tenants: TENANTS_OF_OTHER_ISSUER,
    },
    {
      issuer: 'https://remote.test',
      audience: ORIGIN,
      jwks_url: 'https://remote.test/keys',
      algorithms: ['Ed25519'],
      tenant_claim: 'tenant',
    },
  ];
  const keys = Object.fromEntries(
    [...main, other, remote].map((pair) => [pair.privateJwk.kid, pair.privateJwk]),
  );
  return {
    ISSUERS: JSON.stringify(issuers),
    TEST_ISSUER_KEYS: JSON.stringify(keys),
    TENANT_REQUESTS_PER_MINUTE: REQUESTS_PER_MINUTE,
    // Tests share their isolate's thread with the edge, and the machine with each other: what they send is not shed.
    OVERLOAD_LATE_MS: '60000',
  };
}
