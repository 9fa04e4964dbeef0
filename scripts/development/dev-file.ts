/** `dev.json` in the state folder: what a client on this machine needs to call the running stack. */
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import * as z from 'zod';
import { writePrivateFile } from './private-file.ts';

export const DevFileSchema = z.strictObject({
  url: z.string(),
  token: z.string(),
  operator_token: z.string(),
  /** Null when the gateway runs without a host agent. */
  host_id: z.string().nullable(),
});
export type DevFile = z.infer<typeof DevFileSchema>;

export async function writeDevFile(stateDir: string, file: DevFile): Promise<string> {
  const path = join(stateDir, 'dev.json');
  await writePrivateFile(path, `${JSON.stringify(file, null, 2)}\n`);
  return path;
}

export async function removeDevFile(stateDir: string): Promise<void> {
  await rm(join(stateDir, 'dev.json'), { force: true });
}
