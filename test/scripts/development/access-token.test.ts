import { mkdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { decodeJwt, decodeProtectedHeader, importJWK, jwtVerify } from 'jose';
import { describe, expect, test } from 'vitest';
import * as z from 'zod';
import { DEVELOPMENT_ISSUER, mintAccessToken } from '../../../scripts/development/access-token.ts';
import { developmentBindings } from '../../../scripts/development/bindings.ts';
import { loadDevelopmentKeys, sha256HexOf } from '../../../scripts/development/keys.ts';
import { PrivateJwkSchema, PublicJwkSchema, publicPart } from '../../../shared/ed25519.ts';
import { SCOPES } from '../../../shared/scopes.ts';
import { temporaryFolder } from '../temporary-folder.ts';

const ORIGIN = 'http://127.0.0.1:8787';
const IssuersSchema = z.array(
  z.object({ issuer: z.string(), audience: z.string(), jwks: z.object({ keys: z.array(PublicJwkSchema) }) }),
);

describe('a development access token', () => {
  test('verifies with the key that the edge is configured with, and names what the edge asks for', async () => {
    const keys = await loadDevelopmentKeys(temporaryFolder(), ORIGIN);
    const [issuer] = IssuersSchema.parse(JSON.parse(developmentBindings(keys).ISSUERS ?? ''));
    const jwk = issuer?.jwks.keys[0];
    if (issuer === undefined || jwk === undefined) throw new Error('no issuer');
    const { payload, protectedHeader } = await jwtVerify(
      await mintAccessToken(keys),
      await importJWK({ ...jwk, alg: 'Ed25519' }),
      { issuer: issuer.issuer, audience: issuer.audience, algorithms: ['Ed25519'], typ: 'at+jwt' },
    );
    expect(protectedHeader.kid).toBe(jwk.kid);
    expect(payload).toMatchObject({
      iss: DEVELOPMENT_ISSUER,
      sub: 'developer',
      aud: ORIGIN,
      tenant: 'development',
    });
    expect(payload.scope).toBe(Object.keys(SCOPES).join(' '));
    expect(payload.jti).toMatch(/^[A-Za-z0-9_-]{22}$/);
    expect(payload.exp).toBe((payload.iat ?? 0) + 86_400);
  });

  test('claims and header can be replaced, added and left out', async () => {
    const keys = await loadDevelopmentKeys(temporaryFolder(), ORIGIN);
    const token = await mintAccessToken(keys, {
      claims: { tenant: 'other', jti: undefined, extra: 1 },
      header: { typ: 'JWT' },
    });
    expect(decodeJwt(token)).toMatchObject({ tenant: 'other', extra: 1 });
    expect(decodeJwt(token)).not.toHaveProperty('jti');
    expect(decodeProtectedHeader(token).typ).toBe('JWT');
  });
});

describe('development keys', () => {
  test('are the same at the second start, whatever the port is then', async () => {
    const stateDir = temporaryFolder();
    const first = await loadDevelopmentKeys(stateDir, ORIGIN);
    expect(await loadDevelopmentKeys(stateDir, 'http://127.0.0.1:9999')).toEqual(first);
  });

  test('can be read by their owner only', async () => {
    const stateDir = temporaryFolder();
    await loadDevelopmentKeys(stateDir, ORIGIN);
    expect(statSync(join(stateDir, 'keys/development.json')).mode & 0o777).toBe(0o600);
    expect(statSync(join(stateDir, 'keys')).mode & 0o777).toBe(0o700);
  });

  test('that are damaged stop the start and are not replaced', async () => {
    const stateDir = temporaryFolder();
    const path = join(stateDir, 'keys/development.json');
    mkdirSync(join(stateDir, 'keys'));
    writeFileSync(path, '{"edge_origin":');
    await expect(loadDevelopmentKeys(stateDir, ORIGIN)).rejects.toThrow(`${path} is damaged`);
    expect(readFileSync(path, 'utf8')).toBe('{"edge_origin":');
  });

  test('the edge gets three different signing keys, the issuer gives it no private part, and no token in clear', async () => {
    const keys = await loadDevelopmentKeys(temporaryFolder(), ORIGIN);
    const bindings = developmentBindings(keys);
    const signing = [bindings.EDGE_ROOT_KEY, bindings.GRANT_KEY, bindings.RECEIPT_KEY].map((text) =>
      JSON.stringify(publicPart(PrivateJwkSchema.parse(JSON.parse(text ?? '')))),
    );
    expect(new Set(signing).size).toBe(3);
    expect(bindings.OPERATOR_TOKEN_SHA256).toBe(sha256HexOf(keys.operator_token));
    const everything = JSON.stringify(bindings);
    expect(everything).not.toContain(keys.operator_token);
    expect(everything).not.toContain(keys.issuer_key.d);
  });
});
