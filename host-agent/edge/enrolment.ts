/** Enrolment: the host makes its own key, proves that it holds it, and pins the edge's root key from then on. */
import { createPrivateKey, type KeyObject } from 'node:crypto';
import { mkdir, open, readFile, rename } from 'node:fs/promises';
import { join } from 'node:path';
import { request } from 'undici';
import * as z from 'zod';
import {
  generatePrivateJwk,
  importPrivateKey,
  importPublicKey,
  keyIdOf,
  type PrivateJwk,
  PrivateJwkSchema,
  PublicJwkSchema,
  publicPart,
} from '../../shared/ed25519.ts';
import { toBase64 } from '../../shared/encoding.ts';
import { failure, type Outcome, success } from '../../shared/errors.ts';
import {
  EnrolledSchema,
  EnrollmentChallengeSchema,
  enrollmentMessage,
  ROUTES,
} from '../../shared/host-api.ts';
import { HostIdSchema } from '../../shared/ids.ts';

const IdentitySchema = z.object({
  host_id: HostIdSchema,
  private_key: PrivateJwkSchema,
  edge_origin: z.string(),
  root_key: PublicJwkSchema,
  key_set: z.string(),
  certificate: z.string(),
});
type StoredIdentity = z.infer<typeof IdentitySchema>;

export interface HostIdentity {
  hostId: string;
  keyId: string;
  privateKey: CryptoKey;
  /** The same key, for signatures that are made without waiting. */
  signingKey: KeyObject;
  edgeOrigin: string;
  rootKey: CryptoKey;
  /** The key set of the enrolment; later ones are in the journal. */
  keySet: string;
  certificate: string;
}

export interface EnrolmentOptions {
  /** Folder of `identity.json`. */
  directory: string;
  edgeUrl: string;
  /** Name of the edge in signatures; normally the origin of its URL. */
  edgeOrigin: string;
  enrolmentToken: string | undefined;
  agentVersion: string;
}

/** The identity on disk, or a new one where there is none and a token allows it. Unreachable edges are `overloaded`. */
export async function identityOf(options: EnrolmentOptions): Promise<Outcome<HostIdentity>> {
  const path = join(options.directory, 'identity.json');
  const stored = await readIdentity(path);
  if (!stored.ok) return stored;
  if (stored.value !== null) return activate(stored.value);
  if (options.enrolmentToken === undefined) {
    return failure('enrollment_refused', 'this host is not enrolled and has no SANDGATE_ENROLLMENT_TOKEN');
  }
  const enrolled = await enrol(options, options.enrolmentToken);
  if (!enrolled.ok) return enrolled;
  const active = await activate(enrolled.value);
  if (active.ok) await writeIdentity(options.directory, path, enrolled.value);
  return active;
}

async function enrol(options: EnrolmentOptions, enrolmentToken: string): Promise<Outcome<StoredIdentity>> {
  const privateJwk = await generatePrivateJwk();
  const challenge = await post(options.edgeUrl, ROUTES.challenges, {}, EnrollmentChallengeSchema);
  if (!challenge.ok) return challenge;
  const { nonce } = challenge.value;
  const enrolled = await post(
    options.edgeUrl,
    ROUTES.enroll,
    {
      enrollment_token: enrolmentToken,
      nonce,
      public_key: publicPart(privateJwk),
      signature: await signEnrolment(privateJwk, { origin: options.edgeOrigin, nonce }),
      agent_version: options.agentVersion,
    },
    EnrolledSchema,
  );
  if (!enrolled.ok) return enrolled;
  if (enrolled.value.edge_origin !== options.edgeOrigin) {
    const { edge_origin } = enrolled.value;
    return failure('enrollment_refused', `the edge is ${edge_origin}, expected ${options.edgeOrigin}`);
  }
  return success({ ...enrolled.value, private_key: privateJwk });
}

async function signEnrolment(jwk: PrivateJwk, fields: { origin: string; nonce: string }): Promise<string> {
  const key = await importPrivateKey(jwk);
  const message = enrollmentMessage({ ...fields, publicKeyX: jwk.x });
  return toBase64(new Uint8Array(await crypto.subtle.sign('Ed25519', key, message)));
}

async function activate(stored: StoredIdentity): Promise<Outcome<HostIdentity>> {
  const root = await importPublicKey(stored.root_key);
  if (root === undefined) return failure('enrollment_refused', 'the root key of the edge is not usable');
  return success({
    hostId: stored.host_id,
    keyId: await keyIdOf(stored.private_key),
    privateKey: await importPrivateKey(stored.private_key),
    signingKey: createPrivateKey({ key: { ...stored.private_key }, format: 'jwk' }),
    edgeOrigin: stored.edge_origin,
    rootKey: root.key,
    keySet: stored.key_set,
    certificate: stored.certificate,
  });
}

async function readIdentity(path: string): Promise<Outcome<StoredIdentity | null>> {
  const text = await readFile(path, 'utf8').catch(() => null);
  if (text === null) return success(null);
  try {
    return success(IdentitySchema.parse(JSON.parse(text)));
  } catch {
    return failure('internal', `${path} is damaged; restore it, or remove it and enrol this host anew`);
  }
}

/** Whole or not at all: a host that lost half of its identity could never prove who it is. */
async function writeIdentity(directory: string, path: string, identity: StoredIdentity): Promise<void> {
  await mkdir(directory, { recursive: true, mode: 0o700 });
  const temporary = `${path}.new`;
  const file = await open(temporary, 'w', 0o600);
  await file.writeFile(`${JSON.stringify(identity)}\n`);
  await file.sync();
  await file.close();
  await rename(temporary, path);
  const folder = await open(directory, 'r');
  await folder.sync();
  await folder.close();
}

const REQUEST_TIMEOUT_MS = 10_000;
const MAX_ANSWER_BYTES = 64 * 1024;

async function post<T>(
  edgeUrl: string,
  path: string,
  body: object,
  schema: z.ZodType<T>,
): Promise<Outcome<T>> {
  try {
    const { statusCode, body: answer } = await request(new URL(path, edgeUrl), {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(body),
      signal: AbortSignal.timeout(REQUEST_TIMEOUT_MS),
    });
    let text = '';
    for await (const chunk of answer.setEncoding('utf8')) {
      text += String(chunk);
      if (text.length > MAX_ANSWER_BYTES)
        return failure('protocol_violation', `${path}: the answer is too long`);
    }
    if (statusCode >= 500 || statusCode === 429)
      return failure('overloaded', `${path} answered ${statusCode}`);
    if (statusCode >= 300) return failure('enrollment_refused', `${path} answered ${statusCode}`);
    const parsed = schema.safeParse(JSON.parse(text));
    if (parsed.success) return success(parsed.data);
    return failure('protocol_violation', `${path}: the answer does not have its fields`);
  } catch (error: unknown) {
    const reason = error instanceof Error ? error.message : 'no answer';
    return failure('overloaded', `${path}: ${reason}`);
  }
}
