/** Access tokens for the tests: valid ones, and ones with a single fault. */
import { env } from 'cloudflare:workers';
import { importJWK } from 'jose';
import * as z from 'zod';
import { toBase64Url, utf8 } from '../../shared/encoding.ts';
import { SCOPES } from '../../shared/scopes.ts';
import { ORIGIN } from './issuer-bindings.ts';

const JwkSchema = z.looseObject({ kty: z.string(), alg: z.string(), kid: z.string() });
const keys = z.record(z.string(), JwkSchema).parse(JSON.parse(env.TEST_ISSUER_KEYS));

const ALGORITHM_PARAMETERS: Record<string, string | SubtleCryptoSignAlgorithm> = {
  Ed25519: 'Ed25519',
  EdDSA: 'Ed25519',
  ES256: { name: 'ECDSA', hash: 'SHA-256' },
  RS256: 'RSASSA-PKCS1-v1_5',
};

export const ALL_SCOPES = Object.keys(SCOPES).join(' ');

export interface TokenOptions {
  /** Replace claims; `undefined` leaves one out. */
  claims?: Record<string, unknown>;
  header?: Record<string, unknown>;
  /** Key that signs: `ed`, `ec`, `rsa`, `other` or `remote`. */
  key?: string;
  nowS?: number;
}

export function nowS(): number {
  return Math.floor(Date.now() / 1_000);
}

/** A token that the gateway accepts, unless an option breaks it. Each has its own tenant name only if asked. */
export async function tokenOf(options: TokenOptions = {}): Promise<string> {
  return sign(claimsOf(options), options);
}

export function claimsOf(options: TokenOptions = {}): Record<string, unknown> {
  const issuedS = options.nowS ?? nowS();
  return {
    iss: 'https://issuer.test',
    aud: ORIGIN,
    sub: 'alice',
    client_id: 'agent',
    tenant: 'acme',
    scope: ALL_SCOPES,
    jti: crypto.randomUUID(),
    iat: issuedS,
    exp: issuedS + 600,
    ...options.claims,
  };
}

export function publicJwk(keyId: string): Record<string, unknown> {
  const { d: _, p: __, q: ___, dp: ____, dq: _____, qi: ______, ...rest } = privateJwk(keyId);
  return rest;
}

export function privateJwk(keyId: string): z.infer<typeof JwkSchema> {
  const jwk = keys[keyId];
  if (jwk === undefined) throw new Error(`no test key ${keyId}`);
  return jwk;
}

/** Signs any payload: objects as JSON, text as it is (for JSON that no serialiser writes). */
export async function sign(payload: Record<string, unknown> | string, options: TokenOptions = {}) {
  const jwk = privateJwk(options.key ?? 'ed');
  const header = { alg: jwk.alg, kid: jwk.kid, typ: 'at+jwt', ...options.header };
  const signed = `${encoded(header)}.${encoded(payload)}`;
  const key = await importJWK(jwk, jwk.alg);
  if (key instanceof Uint8Array) throw new TypeError('a key pair was expected');
  const parameters = ALGORITHM_PARAMETERS[jwk.alg] ?? jwk.alg;
  const signature = await crypto.subtle.sign(parameters, key, utf8(signed));
  return `${signed}.${toBase64Url(new Uint8Array(signature))}`;
}

export function encoded(value: Record<string, unknown> | string): string {
  return toBase64Url(utf8(typeof value === 'string' ? value : JSON.stringify(value)));
}
