/** The keys of a development edge: made at the first start, kept in the state folder, readable by root only. */
import { createHash, randomBytes } from 'node:crypto';
import { mkdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import * as z from 'zod';
import { SetupFailure } from '../../host-agent/setup/failure.ts';
import { generatePrivateJwk, PrivateJwkSchema } from '../../shared/ed25519.ts';
import { writePrivateFile } from './private-file.ts';

const SECRET_BYTES = 32;

const DevelopmentKeysSchema = z.strictObject({
  /** What grants and tokens name this edge by. It stays when PORT changes, because hosts pin it. */
  edge_origin: z.url(),
  /** Signs development access tokens; stands in for an identity provider. */
  issuer_key: PrivateJwkSchema,
  root_key: PrivateJwkSchema,
  grant_key: PrivateJwkSchema,
  receipt_key: PrivateJwkSchema,
  id_secret: z.string().regex(/^[A-Za-z0-9_-]{43}$/),
  operator_token: z.string().min(32),
});
export type DevelopmentKeys = z.infer<typeof DevelopmentKeysSchema>;

export async function loadDevelopmentKeys(stateDir: string, edgeOrigin: string): Promise<DevelopmentKeys> {
  const dir = join(stateDir, 'keys');
  const path = join(dir, 'development.json');
  const text = await readFile(path, 'utf8').catch((error: unknown) => {
    if (error instanceof Error && 'code' in error && error.code === 'ENOENT') return undefined;
    throw error;
  });
  if (text !== undefined) return parseKeys(path, text);
  const keys = await generateDevelopmentKeys(edgeOrigin);
  await mkdir(dir, { recursive: true, mode: 0o700 });
  await writePrivateFile(path, `${JSON.stringify(keys, null, 2)}\n`);
  return keys;
}

/** New keys would orphan every session and host of this state folder, so a damaged file is never replaced. */
function parseKeys(path: string, text: string): DevelopmentKeys {
  try {
    return DevelopmentKeysSchema.parse(JSON.parse(text));
  } catch {
    throw new SetupFailure(`${path} is damaged; restore it, or remove the whole state folder to start anew`);
  }
}

export async function generateDevelopmentKeys(edgeOrigin: string): Promise<DevelopmentKeys> {
  return {
    edge_origin: edgeOrigin,
    issuer_key: await generatePrivateJwk(),
    root_key: await generatePrivateJwk(),
    grant_key: await generatePrivateJwk(),
    receipt_key: await generatePrivateJwk(),
    id_secret: randomBytes(SECRET_BYTES).toString('base64url'),
    operator_token: `op_${randomBytes(SECRET_BYTES).toString('base64url')}`,
  };
}

export function sha256HexOf(text: string): string {
  return createHash('sha256').update(text).digest('hex');
}
