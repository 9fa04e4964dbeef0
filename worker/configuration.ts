/** What the bindings say, parsed and with its keys imported: once per isolate. */
import * as z from 'zod';
import {
  importPrivateKey,
  importPublicKey,
  keyIdOf,
  PrivateJwkSchema,
  type PublicJwk,
  publicPart,
} from '../shared/ed25519.ts';
import { fromBase64Url, utf8 } from '../shared/encoding.ts';
import { Sha256Schema } from '../shared/ids.ts';
import { DatedKeySchema, type KeySet, signKeySet } from '../shared/key-set.ts';
import { type ResourceClasses, ResourceClassesSchema } from '../shared/resource-class.ts';
import { type EmbeddingModel, EmbeddingSettingsSchema } from './embeddings/settings.ts';
import type { Env } from './env.ts';
import { type Issuer, IssuersSchema, isLoopbackHttp, issuerOf } from './identity/issuer.ts';
import { type OwnIssuer, ownIssuerOf } from './identity/own-issuer.ts';
import { type PoolFacts, PoolsSchema } from './placement/pools.ts';
import { type AddressRules, addressFault, addressRules } from './tools/http/address.ts';
import type { WorkersAi } from './workers-ai.ts';

export interface SigningKey {
  keyId: string;
  privateKey: CryptoKey;
  publicKey: CryptoKey;
  publicJwk: PublicJwk;
}

export interface Configuration {
  /** Origin of this edge: issuer of grants, and the resource that access tokens are for. */
  origin: string;
  /** Those that are configured. */
  issuers: ReadonlyMap<string, Issuer>;
  /** The edge itself, for tokens that it gives for API keys. */
  ownIssuer: OwnIssuer;
  /** All whose access tokens are taken. */
  tokenIssuers: ReadonlyMap<string, Issuer>;
  root: SigningKey;
  grant: SigningKey;
  receipt: SigningKey;
  keySet: KeySet;
  /** The key set as a JWS by the root key. */
  signedKeySet: string;
  /** Key of the tags in session ids. */
  tagKey: CryptoKey;
  operatorTokenSha256: string;
  /** No object wakes for a pool that is not in it. */
  pools: ReadonlyMap<string, PoolFacts>;
  tenantRequestsPerMinute: number;
  /** An isolate whose work comes later than this, for longer than a burst, begins to refuse. */
  overloadLateMs: number;
  /** Origins that HTTP tools may call beside public https hosts. */
  httpToolOrigins: ReadonlySet<string>;
  /** Origins that webhooks and callbacks may have beside public https hosts. */
  webhookOrigins: ReadonlySet<string>;
  /** The model whose embeddings the search of tools uses beside words. */
  embeddings: EmbeddingModel | null;
  /** The models of Workers AI that repair runs may ask. */
  repairModels: RepairModels | null;
  /** Sizes of sandboxes by name. */
  resourceClasses: ResourceClasses;
  /** Key that hides credentials of tools at rest. */
  secretsKey: CryptoKey;
  /** What the keys of snapshots are made of. */
  snapshotRoot: CryptoKey;
  /** Key of the tokens by which hosts bring and fetch snapshots. */
  transferKey: CryptoKey;
  /** What the keys of artifacts and outputs are made of. */
  contentRoot: CryptoKey;
  /** Key of the tokens in signed addresses of artifacts. */
  artifactUrlKey: CryptoKey;
}

export interface RepairModels {
  ai: WorkersAi;
  names: ReadonlySet<string>;
}

/** Names the binding that is wrong, never its value: bindings hold secrets. */
export class ConfigurationError extends Error {
  override name = 'ConfigurationError';
}

const cache = new WeakMap<Env, Promise<Configuration>>();
const known = new WeakMap<Env, Configuration>();

/** Undefined before it was read. */
export function configurationNow(env: Env): Configuration | undefined {
  return known.get(env);
}

/** The configuration of this isolate. A broken one is logged once and refuses every caller. */
export function configurationOf(env: Env): Promise<Configuration> {
  const begun = cache.get(env);
  if (begun !== undefined) return begun;
  const reading = readConfiguration(env).then((configuration) => {
    known.set(env, configuration);
    return configuration;
  });
  cache.set(env, reading);
  reading.catch((error: unknown) => {
    const detail = error instanceof ConfigurationError ? error.message : 'unexpected failure';
    console.error(JSON.stringify({ level: 'error', event: 'configuration_broken', detail }));
  });
  return reading;
}

const TextBindingsSchema = z.object({
  EDGE_ORIGIN: z.string().refine(isOrigin, 'must be an https origin, or http on a loopback address'),
  ISSUERS: z.string(),
  EDGE_ROOT_KEY: z.string(),
  GRANT_KEY: z.string(),
  RECEIPT_KEY: z.string(),
  KEY_SET_VERSION: z.string().regex(/^[1-9]\d{0,8}$/, 'must be a whole number from 1'),
  ID_SECRET: z.string(),
  OPERATOR_TOKEN_SHA256: Sha256Schema,
  POOLS: z.string(),
  FORMER_KEYS: z.string().default('{}'),
  HTTP_TOOL_ORIGINS: z.string().default('[]'),
  WEBHOOK_ORIGINS: z.string().default('[]'),
  EMBEDDINGS: z.string().optional(),
  EMBEDDINGS_KEY: z.string().min(1).optional(),
  REPAIR_MODELS: z.string().default('[]'),
  RESOURCE_CLASSES: z.string().default('{}'),
  TENANT_REQUESTS_PER_MINUTE: z.string().regex(/^[1-9]\d{0,6}$/, 'must be a whole number from 1'),
  OVERLOAD_LATE_MS: z
    .string()
    .regex(/^[1-9]\d{0,6}$/, 'must be a whole number of milliseconds from 1')
    .default('25'),
});

export async function readConfiguration(env: Env): Promise<Configuration> {
  const texts = parseBinding('', TextBindingsSchema, env);
  const origin = texts.EDGE_ORIGIN;
  const [root, grant, receipt] = await Promise.all([
    signingKey('EDGE_ROOT_KEY', texts.EDGE_ROOT_KEY),
    signingKey('GRANT_KEY', texts.GRANT_KEY),
    signingKey('RECEIPT_KEY', texts.RECEIPT_KEY),
  ]);
  if (new Set([root.keyId, grant.keyId, receipt.keyId]).size < 3) {
    throw new ConfigurationError('EDGE_ROOT_KEY, GRANT_KEY and RECEIPT_KEY must be three different keys');
  }
  const former = await readFormerKeys(texts.FORMER_KEYS, [root, grant, receipt]);
  const keySet: KeySet = {
    iss: origin,
    version: Number(texts.KEY_SET_VERSION),
    grant_keys: [undated(grant), ...former.grant],
    receipt_keys: [undated(receipt), ...former.receipt],
  };
  const issuers = await readIssuers(texts.ISSUERS, origin);
  const httpToolOrigins = readOrigins('HTTP_TOOL_ORIGINS', texts.HTTP_TOOL_ORIGINS);
  const ownIssuer = await ownIssuerOf(origin, readIdSecret(texts.ID_SECRET));
  return {
    origin,
    issuers,
    ownIssuer,
    tokenIssuers: new Map([...issuers, [origin, ownIssuer.issuer]]),
    root,
    grant,
    receipt,
    keySet,
    signedKeySet: await signKeySet(keySet, root),
    tagKey: await readTagKey(texts.ID_SECRET),
    operatorTokenSha256: texts.OPERATOR_TOKEN_SHA256,
    pools: readPools(texts.POOLS),
    tenantRequestsPerMinute: Number(texts.TENANT_REQUESTS_PER_MINUTE),
    overloadLateMs: Number(texts.OVERLOAD_LATE_MS),
    httpToolOrigins,
    webhookOrigins: readOrigins('WEBHOOK_ORIGINS', texts.WEBHOOK_ORIGINS),
    embeddings: readEmbeddings(env, addressRules({ origin, httpToolOrigins })),
    repairModels: readRepairModels(texts.REPAIR_MODELS, env.AI),
    resourceClasses: parseBinding(
      'RESOURCE_CLASSES',
      ResourceClassesSchema,
      parseJson('RESOURCE_CLASSES', texts.RESOURCE_CLASSES),
    ),
    secretsKey: await readSecretsKey(texts.ID_SECRET),
    snapshotRoot: await readRoot(texts.ID_SECRET, 'keys of snapshots'),
    transferKey: await readTokenKey(texts.ID_SECRET, 'transfers of snapshots'),
    contentRoot: await readRoot(texts.ID_SECRET, 'keys of content'),
    artifactUrlKey: await readTokenKey(texts.ID_SECRET, 'addresses of artifacts'),
  };
}

function readPools(text: string): ReadonlyMap<string, PoolFacts> {
  return parseBinding('POOLS', PoolsSchema, parseJson('POOLS', text));
}

const OriginsSchema = z
  .array(
    z.string().refine((text) => URL.canParse(text) && new URL(text).origin === text, 'must be an origin'),
  )
  .max(256);

function readOrigins(binding: string, text: string): ReadonlySet<string> {
  return new Set(parseBinding(binding, OriginsSchema, parseJson(binding, text)));
}

function readEmbeddings(
  { EMBEDDINGS: text, EMBEDDINGS_KEY: key, AI: ai }: Env,
  rules: AddressRules,
): EmbeddingModel | null {
  if (text === undefined) return null;
  const settings = parseBinding('EMBEDDINGS', EmbeddingSettingsSchema, parseJson('EMBEDDINGS', text));
  if (settings.kind === 'workers-ai') {
    if (ai === undefined) throw new ConfigurationError('EMBEDDINGS.kind: workers-ai needs the binding AI');
    return { settings, ai };
  }
  const fault = addressFault(new URL(settings.url), rules);
  if (fault !== undefined) throw new ConfigurationError(`EMBEDDINGS.url: expected ${fault}`);
  return { settings, key, rules };
}

const ModelNamesSchema = z.array(z.string().min(1).max(256)).max(64);

function readRepairModels(text: string, ai: WorkersAi | undefined): RepairModels | null {
  const names = parseBinding('REPAIR_MODELS', ModelNamesSchema, parseJson('REPAIR_MODELS', text));
  if (names.length === 0) return null;
  if (ai === undefined) throw new ConfigurationError('REPAIR_MODELS needs the binding AI');
  return { ai, names: new Set(names) };
}

async function readIssuers(text: string, origin: string): Promise<ReadonlyMap<string, Issuer>> {
  const entries = parseBinding('ISSUERS', IssuersSchema, parseJson('ISSUERS', text));
  const issuers = new Map<string, Issuer>();
  for (const entry of entries) {
    if (entry.issuer === origin) throw new ConfigurationError('ISSUERS names the edge itself');
    if (issuers.has(entry.issuer)) throw new ConfigurationError(`ISSUERS names ${entry.issuer} twice`);
    const issuer = await issuerOf(entry, { plainHttp: isLoopbackHttp(new URL(origin)) });
    if (!issuer.ok) throw new ConfigurationError(`ISSUERS: ${entry.issuer}: ${issuer.detail}`);
    issuers.set(entry.issuer, issuer.value);
  }
  return issuers;
}

async function signingKey(binding: string, text: string): Promise<SigningKey> {
  const jwk = parseBinding(binding, PrivateJwkSchema, parseJson(binding, text));
  const publicJwk = publicPart({ ...jwk, kid: await keyIdOf(jwk) });
  const imported = await importPublicKey(publicJwk);
  if (imported === undefined) throw new ConfigurationError(`${binding} is not a usable Ed25519 key`);
  const privateKey = await importPrivateKey(jwk).catch(() => undefined);
  if (privateKey === undefined || !(await areOnePair(privateKey, imported.key))) {
    throw new ConfigurationError(`${binding}: the public part does not belong to the private part`);
  }
  return { keyId: await keyIdOf(jwk), privateKey, publicKey: imported.key, publicJwk };
}

async function areOnePair(privateKey: CryptoKey, publicKey: CryptoKey): Promise<boolean> {
  const message = new Uint8Array(32);
  const signature = await crypto.subtle.sign('Ed25519', privateKey, message);
  return crypto.subtle.verify('Ed25519', publicKey, signature, message);
}

function readIdSecret(text: string): Uint8Array<ArrayBuffer> {
  const secret = fromBase64Url(text);
  if (secret?.length !== 32) throw new ConfigurationError('ID_SECRET must be 32 bytes in base64url');
  return secret;
}

async function readTagKey(text: string): Promise<CryptoKey> {
  return crypto.subtle.importKey('raw', readIdSecret(text), { name: 'HMAC', hash: 'SHA-256' }, false, [
    'sign',
  ]);
}

/** A key of its own from the same secret: what one is used for says nothing about the other. */
async function readSecretsKey(text: string): Promise<CryptoKey> {
  const root = await crypto.subtle.importKey('raw', readIdSecret(text), 'HKDF', false, ['deriveKey']);
  const derivation = {
    name: 'HKDF',
    hash: 'SHA-256',
    salt: new Uint8Array(0),
    info: utf8('secrets at rest'),
  };
  return crypto.subtle.deriveKey(derivation, root, { name: 'AES-GCM', length: 256 }, false, [
    'encrypt',
    'decrypt',
  ]);
}

const FormerKeysSchema = z.strictObject({
  grant: z.array(DatedKeySchema).max(7).default([]),
  receipt: z.array(DatedKeySchema).max(7).default([]),
});
type FormerKeys = z.infer<typeof FormerKeysSchema>;

/**
 * Each key is what its id says, and there once. One that signs now is left out: so it can be named before the new key is
 * put in its place.
 */
async function readFormerKeys(text: string, present: readonly SigningKey[]): Promise<FormerKeys> {
  const former = parseBinding('FORMER_KEYS', FormerKeysSchema, parseJson('FORMER_KEYS', text));
  const seen = new Set<string>();
  for (const { kid, jwk } of [...former.grant, ...former.receipt]) {
    if ((await importPublicKey(jwk)) === undefined || (await keyIdOf(jwk)) !== kid) {
      throw new ConfigurationError(`FORMER_KEYS: ${kid} is not the id of its key`);
    }
    if (seen.has(kid)) throw new ConfigurationError(`FORMER_KEYS: ${kid} is there twice`);
    seen.add(kid);
  }
  const signsNow = new Set(present.map(({ keyId }) => keyId));
  const isFormer = ({ kid }: { kid: string }): boolean => !signsNow.has(kid);
  return { grant: former.grant.filter(isFormer), receipt: former.receipt.filter(isFormer) };
}

/** As above: a secret for each use, made of the one that there is. */
async function readRoot(text: string, use: string): Promise<CryptoKey> {
  const bits = await derivedBits(text, use);
  return crypto.subtle.importKey('raw', bits, 'HKDF', false, ['deriveBits', 'deriveKey']);
}

async function readTokenKey(text: string, use: string): Promise<CryptoKey> {
  const bits = await derivedBits(text, use);
  return crypto.subtle.importKey('raw', bits, { name: 'HMAC', hash: 'SHA-256' }, false, ['sign', 'verify']);
}

async function derivedBits(text: string, use: string): Promise<ArrayBuffer> {
  const secret = fromBase64Url(text);
  if (secret === undefined) throw new ConfigurationError('ID_SECRET must be 32 bytes in base64url');
  const root = await crypto.subtle.importKey('raw', secret, 'HKDF', false, ['deriveBits']);
  const derivation = { name: 'HKDF', hash: 'SHA-256', salt: new Uint8Array(0), info: utf8(use) };
  return crypto.subtle.deriveBits(derivation, root, 256);
}

function undated(key: SigningKey): KeySet['grant_keys'][number] {
  return { kid: key.keyId, jwk: key.publicJwk, not_before: null, not_after: null, revoked_at: null };
}

function parseJson(binding: string, text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    throw new ConfigurationError(`${binding} is not JSON`);
  }
}

function parseBinding<T>(binding: string, schema: z.ZodType<T>, value: unknown): T {
  const parsed = schema.safeParse(value);
  if (parsed.success) return parsed.data;
  const issue = parsed.error.issues[0];
  const path = [binding, ...(issue?.path ?? [])].filter((part) => part !== '').join('.');
  throw new ConfigurationError(`${path}: ${issue?.message ?? 'wrong'}`);
}

function isOrigin(text: string): boolean {
  if (!URL.canParse(text)) return false;
  const url = new URL(text);
  return url.origin === text && (url.protocol === 'https:' || isLoopbackHttp(url));
}
