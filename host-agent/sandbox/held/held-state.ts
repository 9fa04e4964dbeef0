/** What lies beside a sandbox at rest: with it, the successor of an agent that died goes on with the sandbox. */
import { readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import * as z from 'zod';
import { ImageDigestSchema, SessionIdSchema } from '../../../shared/ids.ts';
import { ResourceLimitsSchema } from '../../../shared/session.ts';
import { CarriedSandboxSchema } from '../checkpoint/carried.ts';

/** In the folder of the sandbox; no name that a guest could give a file there. */
export const HELD_FILE = 'held.json';
/** Written while nothing else can happen: what is larger is not held. */
const MAX_HELD_BYTES = 1024 * 1024;

/** The session that a sandbox is of, as it was attached. */
export const SandboxOwnerSchema = z.strictObject({
  sessionId: SessionIdSchema,
  tenant: z.string(),
  epoch: z.int().min(1),
  image: ImageDigestSchema,
  limits: ResourceLimitsSchema,
  generation: z.int().min(0).optional(),
  egress: z.string().optional(),
});
export type SandboxOwner = z.infer<typeof SandboxOwnerSchema>;

const HeldStateSchema = z.strictObject({
  v: z.literal(1),
  runsc_version: z.string(),
  owner: SandboxOwnerSchema,
  sandbox: CarriedSandboxSchema,
});
export type HeldState = z.infer<typeof HeldStateSchema>;

/**
 * Whole or not there. Not synced: what it says is of processes, which a crash of the machine ends. Throws where the disk
 * refuses it.
 */
export function writeHeldState(directory: string, state: HeldState): void {
  const text = JSON.stringify(state);
  if (text.length > MAX_HELD_BYTES) throw new RangeError('the state is too large to be held');
  const path = join(directory, HELD_FILE);
  writeFileSync(`${path}.next`, text, { mode: 0o600 });
  renameSync(`${path}.next`, path);
}

export function removeHeldState(directory: string): void {
  rmSync(join(directory, HELD_FILE), { force: true });
}

/** Undefined where there is none, or none that this agent can go on from. */
export function readHeldState(directory: string): HeldState | undefined {
  try {
    const json: unknown = JSON.parse(readFileSync(join(directory, HELD_FILE), 'utf8'));
    return HeldStateSchema.safeParse(json).data;
  } catch {
    return undefined;
  }
}
