/** Which Debian mirror this machine's apt uses, so that set-up downloads from the same place. */
import * as z from 'zod';
import { run } from '../process/run-command.ts';
import { SetupFailure } from './failure.ts';

export type DebianArchive = { mainUri: string; securityUri: string };

const DEFAULT_ARCHIVE: DebianArchive = {
  mainUri: 'http://deb.debian.org/debian',
  securityUri: 'http://deb.debian.org/debian-security',
};

/** Apt lists a target only once its index is on the disk, so a machine with empty lists updates first. */
export async function debianArchive(updateLists: () => Promise<void>): Promise<DebianArchive> {
  const first = parseTargets(await listTargets());
  if (first.mainUri !== undefined) return { ...DEFAULT_ARCHIVE, ...first };
  await updateLists();
  return { ...DEFAULT_ARCHIVE, ...parseTargets(await listTargets()) };
}

async function listTargets(): Promise<string> {
  const format = '$(CREATED_BY)|$(ORIGIN)|$(CODENAME)|$(REPO_URI)';
  const listed = await run('apt-get', ['indextargets', '--format', format]);
  if (listed.exitCode !== 0) throw new SetupFailure(`apt-get indextargets failed: ${listed.tail}`);
  return listed.stdout;
}

const UriSchema = z.string().regex(/^[a-z+]+:\/\/[^\s"'\]]+$/);

/** Takes `created by|origin|codename|uri` lines; third-party repositories have another origin. */
export function parseTargets(text: string): Partial<DebianArchive> {
  const archive: Partial<DebianArchive> = {};
  for (const line of text.split('\n')) {
    const [createdBy, origin, codename, uri] = line.split('|');
    if (createdBy !== 'Packages' || origin !== 'Debian' || codename === undefined) continue;
    const parsed = UriSchema.safeParse(uri);
    if (!parsed.success) continue;
    const withoutSlash = parsed.data.replace(/\/+$/, '');
    if (codename.endsWith('-security')) archive.securityUri ??= withoutSlash;
    else archive.mainUri ??= withoutSlash;
  }
  return archive;
}
