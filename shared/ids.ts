/** Identifiers: a prefix that says the kind, then 128 random bits, for sessions followed by a tag of the edge. */
import * as z from 'zod';
import { toBase64Url, utf8 } from './encoding.ts';

const HANDLE = '[A-Za-z0-9_-]{22}';

export const ExecutionIdSchema = z.string().regex(new RegExp(`^exe_${HANDLE}$`));
export const SnapshotIdSchema = z.string().regex(new RegExp(`^snp_${HANDLE}$`));
export const HostIdSchema = z.string().regex(new RegExp(`^hst_${HANDLE}$`));
export const EventIdSchema = z.string().regex(new RegExp(`^evt_${HANDLE}$`));
export const WebhookIdSchema = z.string().regex(new RegExp(`^whk_${HANDLE}$`));
/** A session id carries a keyed tag over (tenant, handle), so a wrong one is refused before any object wakes. */
export const SessionIdSchema = z.string().regex(new RegExp(`^ses_${HANDLE}[A-Za-z0-9_-]{16}$`));
/** Tagged like that of a session. */
export const WorkflowIdSchema = z.string().regex(new RegExp(`^wfl_${HANDLE}[A-Za-z0-9_-]{16}$`));
export const RepairRunIdSchema = z.string().regex(new RegExp(`^rpr_${HANDLE}[A-Za-z0-9_-]{16}$`));
export const TenantSchema = z.string().regex(/^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$/);
export const Sha256Schema = z.string().regex(/^[0-9a-f]{64}$/);
export const ImageDigestSchema = z.string().regex(/^sha256:[0-9a-f]{64}$/);
export const KeyIdSchema = z.string().regex(/^[A-Za-z0-9_-]{1,64}$/);

export const DEFAULT_POOL = 'default';
export const PoolNameSchema = z.string().regex(/^[a-z0-9][a-z0-9-]{0,62}$/);

export type IdPrefix =
  | 'exe'
  | 'hst'
  | 'req'
  | 'lnk'
  | 'jti'
  | 'rct'
  | 'enr'
  | 'trf'
  | 'trm'
  | 'prc'
  | 'snp'
  | 'tcl'
  | 'art'
  | 'evt'
  | 'whk';

export function newId(prefix: IdPrefix): string {
  return `${prefix}_${randomHandle()}`;
}

export function randomHandle(): string {
  return toBase64Url(crypto.getRandomValues(new Uint8Array(16)));
}

/** 12 bytes of HMAC-SHA-256: forging one is 2^96 work, and it only saves an object from waking. */
const TAG_BYTES = 12;

export async function newSessionId(tagKey: CryptoKey, tenant: string): Promise<string> {
  const handle = randomHandle();
  return `ses_${handle}${await ownersTag(tagKey, 'session', { tenant, handle })}`;
}

export async function newWorkflowId(tagKey: CryptoKey, tenant: string): Promise<string> {
  const handle = randomHandle();
  return `wfl_${handle}${await ownersTag(tagKey, 'workflow', { tenant, handle })}`;
}

/** Whether this edge made the id for this tenant. */
export async function isSessionIdOf(tagKey: CryptoKey, tenant: string, sessionId: string): Promise<boolean> {
  if (!SessionIdSchema.safeParse(sessionId).success) return false;
  return hasOwnersTag(tagKey, 'session', { tenant, id: sessionId });
}

export async function newRepairRunId(tagKey: CryptoKey, tenant: string): Promise<string> {
  const handle = randomHandle();
  return `rpr_${handle}${await ownersTag(tagKey, 'repair', { tenant, handle })}`;
}

export async function isRepairRunIdOf(tagKey: CryptoKey, tenant: string, runId: string): Promise<boolean> {
  if (!RepairRunIdSchema.safeParse(runId).success) return false;
  return hasOwnersTag(tagKey, 'repair', { tenant, id: runId });
}

export async function isWorkflowIdOf(
  tagKey: CryptoKey,
  tenant: string,
  workflowId: string,
): Promise<boolean> {
  if (!WorkflowIdSchema.safeParse(workflowId).success) return false;
  return hasOwnersTag(tagKey, 'workflow', { tenant, id: workflowId });
}

async function hasOwnersTag(
  tagKey: CryptoKey,
  kind: TaggedKind,
  { tenant, id }: { tenant: string; id: string },
): Promise<boolean> {
  const expected = await ownersTag(tagKey, kind, { tenant, handle: id.slice(4, 26) });
  return constantTimeEqual(expected, id.slice(26));
}

type TaggedKind = 'session' | 'workflow' | 'repair';

async function ownersTag(
  tagKey: CryptoKey,
  kind: TaggedKind,
  { tenant, handle }: { tenant: string; handle: string },
): Promise<string> {
  const mac = await crypto.subtle.sign('HMAC', tagKey, utf8(`${kind}\n${tenant}\n${handle}`));
  return toBase64Url(new Uint8Array(mac).subarray(0, TAG_BYTES));
}

export function constantTimeEqual(left: string, right: string): boolean {
  if (left.length !== right.length) return false;
  let difference = 0;
  for (let index = 0; index < left.length; index += 1) {
    difference |= left.charCodeAt(index) ^ right.charCodeAt(index);
  }
  return difference === 0;
}
