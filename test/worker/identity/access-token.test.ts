import { afterEach, describe, expect, test, vi } from 'vitest';
import { fromBase64Url, toBase64Url, utf8 } from '../../../shared/encoding.ts';
import {
  ALL_SCOPES,
  claimsOf,
  encoded,
  nowS,
  privateJwk,
  publicJwk,
  sign,
  type TokenOptions,
  tokenOf,
} from '../fixture-issuer.ts';
import { api, problemIn } from '../harness/api.ts';
import { wokenObjects } from '../harness/traces.ts';
import { ORIGIN } from '../issuer-bindings.ts';

type Make = () => string | Promise<string>;

const LIST = '/v1/sessions';

async function statusOf(token: string): Promise<number> {
  return (await api('GET', LIST, { token })).status;
}

async function objectCount(): Promise<number> {
  return (await wokenObjects()).length;
}

const withClaims =
  (claims: Record<string, unknown>): Make =>
  () =>
    tokenOf({ claims });
const withHeader =
  (header: Record<string, unknown>, key = 'ed'): Make =>
  () =>
    tokenOf({ header, key });

/** A valid token with one of its three parts replaced. */
async function altered(options: TokenOptions, alter: (parts: string[]) => string[]): Promise<string> {
  return alter((await tokenOf(options)).split('.')).join('.');
}

async function hmacToken(secret: string): Promise<string> {
  const signed = `${encoded({ alg: 'HS256', kid: 'rsa', typ: 'at+jwt' })}.${encoded(claimsOf())}`;
  const key = await crypto.subtle.importKey('raw', utf8(secret), { name: 'HMAC', hash: 'SHA-256' }, false, [
    'sign',
  ]);
  return `${signed}.${toBase64Url(new Uint8Array(await crypto.subtle.sign('HMAC', key, utf8(signed))))}`;
}

/** S + L: the other number that the group equation accepts where the range is not checked. */
function malleated(signature: string): string {
  const bytes = fromBase64Url(signature) ?? new Uint8Array(64);
  const order = 2n ** 252n + 27742317777372353535851937790883648493n;
  let scalar = order;
  for (let index = 0; index < 32; index += 1) scalar += BigInt(bytes[32 + index] ?? 0) << BigInt(8 * index);
  for (let index = 0; index < 32; index += 1)
    bytes[32 + index] = Number((scalar >> BigInt(8 * index)) & 0xffn);
  return toBase64Url(bytes);
}

/** The same bytes written with other unused bits in the last character. */
function nonCanonical(part: string): string {
  const alphabet = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_';
  return part.slice(0, -1) + (alphabet[alphabet.indexOf(part.slice(-1)) ^ 1] ?? '');
}

const deep = (depth: number): string => `${'['.repeat(depth)}${']'.repeat(depth)}`;
const claimsText = (extra: string): string => `${JSON.stringify(claimsOf()).slice(0, -1)},${extra}}`;

interface Attack {
  id: string;
  /** The same without the fault: accepted, or the row would prove nothing. */
  twin?: Make;
  rows: Record<string, Make>;
}

const attacks: Attack[] = [
  {
    id: 'A03',
    rows: {
      ...Object.fromEntries(
        ['none', 'None', 'nOnE', 'NONE'].map((alg) => [
          `alg ${alg}`,
          () => altered({ header: { alg } }, ([header = '', claims = '']) => [header, claims, '']),
        ]),
      ),
      'alg none with a signature': withHeader({ alg: 'none' }),
      'an empty signature': () => altered({}, ([header = '', claims = '']) => [header, claims, '']),
    },
  },
  {
    id: 'A04',
    twin: () => tokenOf({ key: 'rsa' }),
    rows: {
      'the public key as an HMAC secret': () => hmacToken(JSON.stringify(publicJwk('rsa'))),
      'its modulus as an HMAC secret': () => hmacToken(String(publicJwk('rsa').n)),
    },
  },
  {
    id: 'A05',
    twin: () => tokenOf({ key: 'ec' }),
    rows: {
      'ES256 named for the Ed25519 key': withHeader({ alg: 'ES256' }),
      'Ed25519 named for the RSA key': withHeader({ alg: 'Ed25519' }, 'rsa'),
      'RS256 by the key id of the EC key': withHeader({ kid: 'ec' }, 'rsa'),
      'the former name of Ed25519, which the issuer does not list': withHeader({ alg: 'EdDSA' }),
      'PS256 with the RSA key': withHeader({ alg: 'PS256' }, 'rsa'),
    },
  },
  {
    id: 'A25',
    twin: () => tokenOf(),
    rows: {
      'a token bound to a DPoP key': withClaims({ cnf: { jkt: 'a'.repeat(43) } }),
      'a token bound to a certificate': withClaims({ cnf: { 'x5t#S256': 'a'.repeat(43) } }),
      'a token with an empty binding': withClaims({ cnf: null }),
    },
  },
  { id: 'A06', rows: { 'an embedded key': withHeader({ jwk: { kty: 'OKP', crv: 'Ed25519', x: 'A' } }) } },
  {
    id: 'A07',
    rows: {
      jku: withHeader({ jku: 'https://evil.test/keys' }),
      x5u: withHeader({ x5u: 'https://evil.test/certificate' }),
      x5c: withHeader({ x5c: ['MIIB'] }),
    },
  },
  {
    id: 'A08',
    rows: Object.fromEntries(
      [
        '../../etc/passwd',
        "' OR 1=1 --",
        'x'.repeat(10_240),
        '__proto__',
        'constructor',
        '',
        ['ed'],
        { kid: 'ed' },
        1,
        null,
        undefined,
      ].map((kid) => [`kid ${JSON.stringify(kid)?.slice(0, 40)}`, withHeader({ kid })]),
    ),
  },
  {
    id: 'A10',
    rows: {
      'an unknown critical parameter': withHeader({ crit: ['exp'], exp: 1 }),
      'an empty critical list': withHeader({ crit: [] }),
      'b64 false': withHeader({ b64: false, crit: ['b64'] }),
      'b64 true': withHeader({ b64: true }),
    },
  },
  {
    id: 'A11',
    rows: {
      'a JWE': () => `${encoded({ alg: 'RSA-OAEP-256', enc: 'A256GCM', typ: 'at+jwt' })}.AA.AA.AA.AA`,
      'a compressed payload': withHeader({ zip: 'DEF' }),
      'a password-based key with a billion rounds': withHeader({ alg: 'PBES2-HS256+A128KW', p2c: 1e9 }),
    },
  },
  {
    id: 'A12',
    rows: {
      'the JSON serialisation': async () => {
        const [header, payload, signature] = (await tokenOf()).split('.');
        return JSON.stringify({ protected: header, payload, signature }).replaceAll(',', ' ');
      },
      'a space inside': async () => (await tokenOf()).replace('.', ' .'),
      'a tab at the end': async () => `${await tokenOf()}\t.`,
      padding: () => altered({}, (parts) => parts.map((part) => `${part}=`)),
      'four parts': async () => `${await tokenOf()}.AA`,
      'two parts': () => altered({}, (parts) => parts.slice(0, 2)),
      'a claim twice': () => sign(claimsText('"sub":"mallory"')),
      'an escaped claim twice': () => sign(claimsText('"su\\u0062":"mallory"')),
      '__proto__ as a claim': () => sign(claimsText('"__proto__":{"tenant":"acme"}')),
      'claims that are an array': () => sign('[]'),
      'claims that are not JSON': () => sign('{"sub":'),
      'a byte order mark before the claims': () => sign(`\ufeff${JSON.stringify(claimsOf())}`),
      'a header parameter twice': () =>
        altered({}, ([, claims = '', signature = '']) => [
          encoded('{"alg":"none","alg":"Ed25519","kid":"ed","typ":"at+jwt"}'),
          claims,
          signature,
        ]),
    },
  },
  {
    id: 'A13',
    rows: Object.fromEntries(
      [
        ['past', () => nowS() - 600],
        ['missing', () => undefined],
        ['text', () => '9999999999'],
        ['huge', () => 1e20],
        ['null', () => null],
        ['negative', () => -1],
        ['over the longest lifetime', () => nowS() + 86_400 + 60],
      ].map(([name, exp]) => [`exp ${String(name)}`, () => tokenOf({ claims: { exp: call(exp) } })]),
    ),
  },
  {
    id: 'A14',
    rows: {
      'nbf in the future': () => tokenOf({ claims: { nbf: nowS() + 600 } }),
      'iat in the future': () => tokenOf({ claims: { iat: nowS() + 300 } }),
      'iat missing': withClaims({ iat: undefined }),
      'iat text': withClaims({ iat: 'now' }),
      'nbf text': withClaims({ nbf: 'now' }),
    },
  },
  {
    id: 'A15',
    rows: Object.fromEntries(
      [
        undefined,
        'https://elsewhere.test',
        `${ORIGIN}.evil`,
        `${ORIGIN}/`,
        ORIGIN.toUpperCase(),
        [ORIGIN],
        [ORIGIN, 'https://elsewhere.test'],
        {},
      ].map((aud) => [`aud ${JSON.stringify(aud)}`, withClaims({ aud })]),
    ),
  },
  {
    id: 'A16',
    twin: () =>
      tokenOf({
        key: 'other',
        claims: { iss: 'https://other.test', 'https://other.test/organisation': 'other-tenant' },
      }),
    rows: {
      'an unknown issuer': withClaims({ iss: 'https://issuer.test.evil' }),
      'a trailing slash': withClaims({ iss: 'https://issuer.test/' }),
      'no issuer': withClaims({ iss: undefined }),
      'an issuer list': withClaims({ iss: ['https://issuer.test'] }),
      'the key of another trusted issuer': () => tokenOf({ key: 'other' }),
      'the key of another trusted issuer under our key id': () =>
        tokenOf({ key: 'other', header: { kid: 'ed' } }),
      'our key for another trusted issuer': withClaims({ iss: 'https://other.test' }),
    },
  },
  {
    id: 'A17',
    twin: withHeader({ typ: 'application/AT+JWT' }),
    rows: Object.fromEntries(
      [
        'JWT',
        undefined,
        'id+jwt',
        'exec-grant+jwt',
        'host-cert+jwt',
        'edge-keys+jwt',
        'dpop+jwt',
        'at+jwt2',
        1,
      ].map((typ) => [`typ ${String(typ)}`, withHeader({ typ })]),
    ),
  },
  {
    id: 'A18',
    rows: Object.fromEntries(
      ['sub', 'client_id', 'jti'].flatMap((claim) =>
        [undefined, '', 1, null, ['alice'], 'a\nb', 'x'.repeat(300)].map((value) => [
          `${claim} ${JSON.stringify(value)?.slice(0, 20)}`,
          withClaims({ [claim]: value }),
        ]),
      ),
    ),
  },
  {
    id: 'A19',
    rows: {
      ...Object.fromEntries(
        [undefined, ['acme'], '', 'a:b', '../acme', 'acme/x', '-acme', 'a'.repeat(65), 7, null].map(
          (tenant) => [`tenant ${JSON.stringify(tenant)?.slice(0, 20)}`, withClaims({ tenant })],
        ),
      ),
      'a tenant that is not one of the issuer': () =>
        tokenOf({
          key: 'other',
          claims: { iss: 'https://other.test', 'https://other.test/organisation': 'acme' },
        }),
    },
  },
  {
    id: 'A21',
    rows: {
      '64 KB': withClaims({ padding: 'x'.repeat(65_536) }),
      '10,000 claims': withClaims(Object.fromEntries(Array.from({ length: 10_000 }, (_, i) => [`c${i}`, i]))),
      '300 claims within the size cap': withClaims(
        Object.fromEntries(Array.from({ length: 300 }, (_, i) => [`c${i}`, i])),
      ),
      'depth 1,000': () => sign(claimsText(`"deep":${deep(1_000)}`)),
      'a header of 2 KB': withHeader({ padding: 'x'.repeat(2_048) }),
    },
  },
  {
    id: 'A22',
    rows: {
      'S + L': () =>
        altered({}, ([header = '', claims = '', signature = '']) => [header, claims, malleated(signature)]),
      'a truncated signature': () =>
        altered({}, ([header = '', claims = '', signature = '']) => [header, claims, signature.slice(0, -2)]),
      'other unused bits in the signature': () =>
        altered({}, ([header = '', claims = '', signature = '']) => [
          header,
          claims,
          nonCanonical(signature),
        ]),
      'one claim changed': () =>
        altered({}, ([header = '', , signature = '']) => [header, encoded(claimsOf()), signature]),
      'a zero signature': () =>
        altered({}, ([header = '', claims = '']) => [header, claims, toBase64Url(new Uint8Array(64))]),
    },
  },
];

function call(value: unknown): unknown {
  return typeof value === 'function' ? value() : value;
}

afterEach(() => {
  vi.restoreAllMocks();
});

// First in the file: nothing valid was sent yet, so that every object that woke would be the attack's doing.
describe.each(attacks)('$id: a token with', ({ rows }) => {
  test.each(Object.entries(rows))(
    '%s is refused, fetches nothing and wakes no object',
    async (_name, make) => {
      const fetched = vi.spyOn(globalThis, 'fetch');
      const answer = await api('GET', LIST, { token: await make() });
      expect(answer.status).toBe(401);
      expect(problemIn(answer).code).toBe('unauthenticated');
      expect(answer.headers.get('WWW-Authenticate')).toContain('error="invalid_token"');
      expect(answer.headers.get('RateLimit-Limit')).toBeNull();
      expect(fetched).not.toHaveBeenCalled();
      expect(await objectCount()).toBe(0);
    },
  );
});

describe.each([
  ['A01 no token', {}],
  ['A02 the token as access_token in the query', { query: true }],
  ['A02 the token in a cookie', { cookie: true }],
  ['A19 a tenant in a header instead of the token', { tenantHeader: true }],
  ['an empty Authorization header', { authorization: '' }],
  ['another scheme', { authorization: 'Basic YWxpY2U6eA==' }],
  ['a scheme without a token', { authorization: 'Bearer' }],
])('%s', (_name, about: Record<string, unknown>) => {
  test('is answered with 401, the metadata of the resource and the scopes to ask for', async () => {
    const token = await tokenOf(about.tenantHeader === true ? { claims: { tenant: undefined } } : {});
    const headers = new Headers();
    if (about.cookie === true) headers.set('Cookie', `access_token=${token}; Authorization=Bearer ${token}`);
    if (typeof about.authorization === 'string') headers.set('Authorization', about.authorization);
    if (about.tenantHeader === true) {
      headers.set('X-Tenant', 'acme');
      headers.set('Authorization', `Bearer ${token}`);
    }
    const path = about.query === true ? `${LIST}?access_token=${token}` : LIST;
    const answer = await api('GET', path, { headers });
    expect(answer.status).toBe(401);
    const challenge = answer.headers.get('WWW-Authenticate') ?? '';
    expect(challenge).toMatch(/^Bearer /);
    expect(challenge).toContain(`resource_metadata="${ORIGIN}/.well-known/oauth-protected-resource"`);
    expect(challenge).toContain('scope="sessions:read"');
    expect(challenge.includes('error=')).toBe(about.tenantHeader === true);
    expect(await objectCount()).toBe(0);
  });
});

describe('A26', () => {
  test.each([
    ['two Authorization headers', (token: string) => [`Bearer ${token}`, `Bearer ${token}`]],
    ['a list of tokens in one', (token: string) => [`Bearer ${token}, Bearer ${token}`]],
    ['a token and an empty one', (token: string) => [`Bearer ${token},`]],
  ])('%s are a bad request that wakes no object', async (_name, values) => {
    const headers = new Headers();
    for (const value of values(await tokenOf())) headers.append('Authorization', value);
    const answer = await api('GET', LIST, { headers });
    expect(answer.status).toBe(400);
    expect(problemIn(answer).violations?.[0]?.path).toBe('header.Authorization');
    expect(await objectCount()).toBe(0);
  });
});

describe('A20: a scope', () => {
  test.each([
    ['missing', undefined],
    ['empty', ''],
    ['of another right', 'sessions:write tools:python'],
    ['that is a part of the right one', 'sessions:rea'],
    ['that the right one is a part of', 'sessions:readers'],
    ['in another case', 'Sessions:Read'],
    ['joined by a comma', 'sessions:read,sessions:write'],
  ])('%s is refused with the scope that is needed, and wakes no object', async (_name, scope) => {
    const answer = await api('GET', LIST, { token: await tokenOf({ claims: { scope } }) });
    expect(answer.status).toBe(403);
    expect(problemIn(answer).code).toBe('insufficient_scope');
    const challenge = answer.headers.get('WWW-Authenticate') ?? '';
    expect(challenge).toContain('error="insufficient_scope"');
    expect(challenge).toContain('scope="sessions:read"');
    expect(await objectCount()).toBe(0);
  });

  test('that is a list is refused as a malformed token', async () => {
    expect(await statusOf(await tokenOf({ claims: { scope: ['sessions:read'] } }))).toBe(401);
  });

  test('of one tool does not run another, and every scope that is missing is named at once', async () => {
    const token = await tokenOf({ claims: { scope: 'tools:shell' } });
    const body = { tool_name: 'python', arguments: { code: '1' } };
    const path = '/v1/sessions/ses_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA/execute';
    const inSession = await api('POST', path, { token, body });
    expect(inSession.status).toBe(403);
    expect(inSession.headers.get('WWW-Authenticate')).toContain('scope="tools:python"');
    const alone = await api('POST', '/v1/execute', { token, body });
    expect(alone.status).toBe(403);
    expect(alone.headers.get('WWW-Authenticate')).toContain('sessions:write');
  });

  test('that is right is accepted among others', async () => {
    expect(await statusOf(await tokenOf({ claims: { scope: 'openid  sessions:read x' } }))).toBe(200);
  });
});

describe('the innocent twin of', () => {
  test.each(attacks)('$id is accepted', async ({ twin }) => {
    const answer = await api('GET', LIST, { token: await (twin ?? (() => tokenOf()))() });
    expect(answer.status).toBe(200);
    expect(await objectCount()).toBeGreaterThan(0);
  });

  test('A01, A02, A19 and A26 is one Bearer header, its scheme in any case', async () => {
    const headers = { Authorization: `bEARER ${await tokenOf()}`, 'X-Tenant': 'globex', Cookie: 'a=b' };
    expect((await api('GET', LIST, { headers })).status).toBe(200);
  });
});

describe('R55: with a clock that differs', () => {
  test.each([
    ['issued and valid from 20 s ahead', () => ({ iat: nowS() + 20, nbf: nowS() + 20 })],
    ['issued 20 s ahead', () => ({ iat: nowS() + 20 })],
    ['expired 20 s ago', () => ({ exp: nowS() - 20 })],
    ['issued 29 s ahead', () => ({ iat: nowS() + 29 })],
  ])('a token %s is accepted', async (_name, claims) => {
    expect(await statusOf(await tokenOf({ claims: claims() }))).toBe(200);
  });

  test.each([
    ['issued and valid from 600 s ahead', () => ({ iat: nowS() + 600, nbf: nowS() + 600 }), 'iat|nbf'],
    ['valid from 40 s ahead', () => ({ nbf: nowS() + 40 }), 'nbf'],
    ['issued 40 s ahead', () => ({ iat: nowS() + 40 }), 'iat'],
    ['expired 31 s ago', () => ({ exp: nowS() - 31 }), 'expired'],
    ['without an end', () => ({ exp: undefined }), 'exp'],
    ['whose end is text', () => ({ exp: '9999999999' }), 'exp'],
    ['whose end is far beyond any clock', () => ({ exp: 1e15 }), 'live for at most'],
  ])('a token %s is refused with the reason', async (_name, claims, reason) => {
    const answer = await api('GET', LIST, { token: await tokenOf({ claims: claims() }) });
    expect(answer.status).toBe(401);
    expect(problemIn(answer).detail).toMatch(new RegExp(reason));
  });
});

test('a refused token is not repeated in the answer', async () => {
  const token = await tokenOf({ claims: { exp: nowS() - 600 } });
  const answer = await api('GET', LIST, { token });
  expect(answer.text + JSON.stringify([...answer.headers])).not.toContain(token.split('.')[1]);
});

test('every kind of key that the issuer has verifies tokens', async () => {
  for (const key of ['ed', 'ec', 'rsa']) {
    expect(privateJwk(key).kid).toBe(key);
    expect(await statusOf(await tokenOf({ key, claims: { scope: ALL_SCOPES } }))).toBe(200);
  }
});
