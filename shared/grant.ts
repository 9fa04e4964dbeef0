/**
 * Grants: short JWS by which the edge tells one host to do one thing once. Bound to host, tenant, session, epoch,
 * execution, tool, payload hash, limits and image, so that none can be used for anything else.
 */
import * as z from 'zod';
import { ArgumentConstraintSchema } from './argument-constraint.ts';
import { compiled } from './compiled-schema.ts';
import { fromBase64Url, toBase64Url, utf8 } from './encoding.ts';
import { type Failure, failure, type Outcome, success } from './errors.ts';
import {
  ExecutionIdSchema,
  HostIdSchema,
  ImageDigestSchema,
  KeyIdSchema,
  SessionIdSchema,
  Sha256Schema,
  TenantSchema,
} from './ids.ts';
import { GRANT_LIFETIME_S, MAX_CLOCK_SKEW_S, MAX_TIMEOUT_MS } from './limits.ts';
import { NetworkSchema } from './network.ts';
import { ResourceLimitsSchema } from './session.ts';
import { RescuePayloadSchema, RestorePayloadSchema } from './snapshot.ts';

export const GRANT_TYPE = 'exec-grant+jwt';
export const GRANT_ALGORITHM = 'Ed25519';

/**
 * What is granted. `attach`: make a sandbox and link it to the session object. `execute`: run one tool call.
 * `stdin`, `tool_result` and `interrupt`: act on a running execution. `file`: move bytes of one file or folder, beside executions.
 * `terminal`: make a terminal or attach to it; what is typed there is bound to the link and this transfer. `process`: one
 * act on a background process. `pause` and `resume`: stop the sandbox where it stands, and let it go on. `suspend`: store a
 * checkpoint of it. `destroy`: end the sandbox of the session.
 */
export const GrantActSchema = z.enum([
  'attach',
  'execute',
  'stdin',
  'tool_result',
  'interrupt',
  'file',
  'terminal',
  'process',
  'pause',
  'resume',
  'suspend',
  'destroy',
]);
export type GrantAct = z.infer<typeof GrantActSchema>;

/**
 * How much of the output a host sends under the link's credit: `full` all of it, because a client reads along; `kept` as
 * much of each stream as is stored, and its tail; `bounded` head and tail only.
 */
export const RelaySchema = z.enum(['full', 'kept', 'bounded']);
export type Relay = z.infer<typeof RelaySchema>;

export const GrantLimitsSchema = ResourceLimitsSchema.extend({
  timeout_ms: z.int().min(1).max(MAX_TIMEOUT_MS),
});

/** Each rule of a tool policy may hold for two arguments. */
const MAX_CONSTRAINTS = 64;

export const GrantClaimsSchema = compiled(
  z.strictObject({
    /** Origin of the edge. */
    iss: z.string().min(1),
    aud: z.string().regex(/^host:hst_[A-Za-z0-9_-]{22}$/),
    sub: z.string().min(1),
    tenant: TenantSchema,
    sid: SessionIdSchema,
    epoch: z.int().min(1),
    /** Rises with each grant of a session. */
    seq: z.int().min(1),
    act: GrantActSchema,
    exec: ExecutionIdSchema.nullable(),
    tool: z.string().nullable(),
    tool_version: z.string().nullable(),
    relay: RelaySchema.nullable(),
    /** Whether the input of the execution stays open for `stdin` grants; closed, a program reads its end at once. */
    stdin: z.boolean().nullable(),
    /** SHA-256 of the payload bytes that travel with the grant: arguments, sandbox configuration or stdin. */
    args_sha256: Sha256Schema,
    image: ImageDigestSchema,
    limits: GrantLimitsSchema,
    /** The way out: `none`, or the digest of the session's network, which an attach grant carries. */
    egress: z.union([z.literal('none'), Sha256Schema]),
    /** What the arguments of the tool, or the path of a file, were held to by the tool policy of the caller. */
    constraints: z.array(ArgumentConstraintSchema).max(MAX_CONSTRAINTS).optional(),
    jti: z.string().regex(/^jti_[A-Za-z0-9_-]{22}$/),
    iat: z.int(),
    exp: z.int(),
  }),
);
export type GrantClaims = z.infer<typeof GrantClaimsSchema>;

/** Payload of an `attach` grant. */
export const AttachPayloadSchema = z.strictObject({
  session_id: SessionIdSchema,
  environment: z.record(z.string(), z.string()),
  /** With the secrets that the host adds to requests. */
  network: NetworkSchema.nullable().default(null),
  /** Head of the session's receipt chain as the edge knows it; `seq` 0 and 64 zeros where there is none yet. */
  chain: z.strictObject({ seq: z.int().min(0), sha256: Sha256Schema }),
  /** What the sandbox is made of, in place of an empty one. */
  snapshot: RestorePayloadSchema.nullable().default(null),
  /** What an empty one is given; in place of `snapshot`. */
  workspace: RescuePayloadSchema.optional(),
});
export type AttachPayload = z.infer<typeof AttachPayloadSchema>;

export interface GrantSigner {
  keyId: string;
  privateKey: CryptoKey;
}

export async function signGrant(claims: GrantClaims, signer: GrantSigner): Promise<string> {
  const header = { alg: GRANT_ALGORITHM, typ: GRANT_TYPE, kid: signer.keyId };
  const signed = `${toBase64Url(utf8(JSON.stringify(header)))}.${toBase64Url(utf8(JSON.stringify(claims)))}`;
  const signature = await crypto.subtle.sign(GRANT_ALGORITHM, signer.privateKey, utf8(signed));
  return `${signed}.${toBase64Url(new Uint8Array(signature))}`;
}

export interface GrantPolicy {
  hostId: string;
  issuer: string;
  /** Live grant-signing keys by key id; keys for other purposes must not be in it. */
  keys: ReadonlyMap<string, CryptoKey>;
  nowS: number;
  /** Of a platform that can check a signature without a trip to another thread, which costs more than the check. */
  verifySignature?: VerifySignature;
}

/** Whether `signature` is an Ed25519 signature of `message` by the key. */
export type VerifySignature = (
  key: CryptoKey,
  message: Uint8Array<ArrayBuffer>,
  signature: Uint8Array<ArrayBuffer>,
) => boolean | Promise<boolean>;

/**
 * Checks signature, key, type, host, issuer and time of a grant. What depends on state (replay, epoch, session,
 * payload hash, caps) is the host's to check afterwards.
 */
export async function verifyGrant(
  token: string | undefined,
  policy: GrantPolicy,
): Promise<Outcome<GrantClaims>> {
  if (token === undefined || token === '') return failure('no_grant', 'the command carries no grant');
  // One grant has one spelling: decoders let stray bits at the end of base64url pass.
  const parts = token.split('.').map(fromBase64Url);
  if (parts.includes(undefined)) return invalid('not canonical base64url');
  const [protectedHeader, claims, signature] = parts;
  const header = protectedHeader === undefined ? undefined : readHeader(protectedHeader);
  if (parts.length !== 3 || header === undefined || claims === undefined || signature === undefined) {
    return invalid('not a compact JWS');
  }
  if (header.alg !== GRANT_ALGORITHM) return invalid(`alg must be ${GRANT_ALGORITHM}`);
  if (header.typ !== GRANT_TYPE) return invalid(`typ must be ${GRANT_TYPE}`);
  const key = policy.keys.get(header.kid);
  if (key === undefined) return invalid('kid is not a live grant key');
  let payload: unknown;
  try {
    const message = utf8(token.slice(0, token.lastIndexOf('.')));
    const isSigned = await (policy.verifySignature ?? verifyWithWebCrypto)(key, message, signature);
    if (!isSigned) return invalid('the signature does not verify');
    payload = parseJson(claims);
  } catch {
    return invalid('the signature does not verify');
  }
  const parsed = GrantClaimsSchema.safeParse(payload);
  if (!parsed.success) return invalid(`claims: ${parsed.error.issues[0]?.path.join('.') ?? 'not an object'}`);
  return checkClaims(parsed.data, policy);
}

function checkClaims(claims: GrantClaims, policy: GrantPolicy): Outcome<GrantClaims> {
  if (claims.iss !== policy.issuer) return invalid('iss is another edge');
  if (claims.aud !== audienceOf(policy.hostId)) return failure('wrong_host', 'aud names another host');
  if (claims.exp - claims.iat > GRANT_LIFETIME_S || claims.exp <= claims.iat) {
    return invalid(`lifetime must be at most ${GRANT_LIFETIME_S} s`);
  }
  if (claims.iat > policy.nowS + MAX_CLOCK_SKEW_S) return failure('grant_expired', 'iat is in the future');
  if (claims.exp <= policy.nowS) return failure('grant_expired', 'exp is past');
  return success(claims);
}

export function audienceOf(hostId: string): string {
  return `host:${HostIdSchema.parse(hostId)}`;
}

const HeaderSchema = z.strictObject({ alg: z.string(), typ: z.string(), kid: KeyIdSchema });

function readHeader(bytes: Uint8Array): z.infer<typeof HeaderSchema> | undefined {
  try {
    return HeaderSchema.safeParse(parseJson(bytes)).data;
  } catch {
    return undefined;
  }
}

const strictUtf8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });

function parseJson(bytes: Uint8Array): unknown {
  return JSON.parse(strictUtf8.decode(bytes));
}

function verifyWithWebCrypto(
  key: CryptoKey,
  message: Uint8Array<ArrayBuffer>,
  signature: Uint8Array<ArrayBuffer>,
): Promise<boolean> {
  return crypto.subtle.verify(GRANT_ALGORITHM, key, signature, message);
}

function invalid(detail: string): Failure {
  return failure('grant_invalid', detail);
}
