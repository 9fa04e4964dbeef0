/** What a host and the edge say to each other over HTTP: enrolment, and the headers of a link's upgrade. */
import * as z from 'zod';
import { PublicJwkSchema } from './ed25519.ts';
import { utf8 } from './encoding.ts';
import { DEFAULT_POOL, HostIdSchema, PoolNameSchema } from './ids.ts';

export const ROUTES = {
  challenges: '/v1/hosts/challenges',
  enroll: '/v1/hosts/enroll',
  controlLink: '/v1/links/control',
  sessionLink: '/v1/links/sessions',
} as const;

/** The beginning of the token's digest: who holds the token can tell which one it is, and nobody learns it from that. */
export const EnrollmentTokenIdSchema = z.string().regex(/^ent_[0-9a-f]{32}$/);

/** `POST /v1/enrollment-tokens` (operator). The token is shown once. */
export const CreateEnrollmentTokenSchema = z.strictObject({
  pool: PoolNameSchema.default(DEFAULT_POOL),
});
export const EnrollmentTokenSchema = z.object({
  token_id: EnrollmentTokenIdSchema,
  enrollment_token: z.string(),
  pool: z.string(),
  expires_at: z.iso.datetime(),
});

/** What is shown of a token afterwards: never the token itself. */
export const ListedEnrollmentTokenSchema = z.object({
  token_id: EnrollmentTokenIdSchema,
  pool: z.string(),
  state: z.enum(['unused', 'used', 'revoked', 'expired']),
  expires_at: z.iso.datetime(),
  used_at: z.iso.datetime().nullable(),
  host_id: HostIdSchema.nullable().describe('The host that enrolled with it.'),
  revoked_at: z.iso.datetime().nullable(),
});
export type ListedEnrollmentToken = z.infer<typeof ListedEnrollmentTokenSchema>;

/** `POST /v1/hosts/challenges` → a nonce to sign at enrolment, good for one use within a minute. */
export const EnrollmentChallengeSchema = z.object({ nonce: z.string().min(22).max(256) });

/** `POST /v1/hosts/enroll`. `signature` is base64 over `enrollmentMessage` by the key in `public_key`. */
export const EnrollSchema = z.strictObject({
  enrollment_token: z.string().min(22).max(256),
  nonce: z.string().min(22).max(256),
  public_key: PublicJwkSchema,
  signature: z.string().max(128),
  agent_version: z.string().max(64),
});

export const EnrolledSchema = z.object({
  host_id: HostIdSchema,
  edge_origin: z.string(),
  /** Root key that signs the edge's key sets: pinned from now on. */
  root_key: PublicJwkSchema,
  key_set: z.string(),
  /** JWS by the edge that binds the host id to the host's public key; presented at each upgrade. */
  certificate: z.string(),
});

export function enrollmentMessage(fields: {
  origin: string;
  nonce: string;
  publicKeyX: string;
}): Uint8Array<ArrayBuffer> {
  return utf8(`sandgate-enrolment\n${fields.origin}\n${fields.nonce}\n${fields.publicKeyX}`);
}

export const HOST_CERTIFICATE_TYPE = 'host-cert+jwt';

/** Claims of a host certificate: signed by the edge's root key, RFC 7800 confirmation key inside. */
export const HostCertificateClaimsSchema = z.object({
  iss: z.string(),
  sub: HostIdSchema,
  pool: z.string(),
  cnf: z.object({ jwk: PublicJwkSchema }),
  iat: z.int(),
});

/** Upgrade headers of both links. The session link names its session so that the edge can route it. */
export const LINK_HEADERS = {
  certificate: 'authorization',
  sessionId: 'sandgate-session',
  tenant: 'sandgate-tenant',
  epoch: 'sandgate-epoch',
} as const;

/**
 * Why a host gets no new sessions though it is connected. `degraded`: it cannot journal. `clock_skew`: its clock is too far
 * from the edge's, until it is set. `receipts_refused`: what it signed was refused again and again; ends when it enrols anew.
 * `cordoned`: its operator wants it so. `draining`: the host was told so too, and takes none from any edge.
 */
export const HostFaultSchema = z.enum(['degraded', 'clock_skew', 'receipts_refused', 'cordoned', 'draining']);
export type HostFault = z.infer<typeof HostFaultSchema>;

export const OperatorHostSchema = z.object({
  host_id: HostIdSchema,
  pool: z.string(),
  state: z.enum(['connected', 'suspect', 'dead']),
  sandboxes: z.int(),
  capacity: z.object({ sandboxes: z.int() }),
  images: z.array(z.object({ name: z.string(), digest: z.string() })),
  faults: z.array(HostFaultSchema).default([]),
  last_seen_at: z.iso.datetime().nullable(),
});

/** One pool of the edge, with what its hosts have together. */
export const PoolSummarySchema = z.object({
  pool: z.string(),
  region: z.string().nullable(),
  classes: z.array(z.string()).nullable().describe('Resource classes that it is for; null: every class.'),
  hosts: z.object({ connected: z.int(), suspect: z.int(), dead: z.int() }),
  sandboxes: z.int(),
  capacity: z.object({ sandboxes: z.int() }),
  room: z.int().describe('Sandboxes that its hosts would take now: of those that get new sessions.'),
});
export type PoolSummary = z.infer<typeof PoolSummarySchema>;
