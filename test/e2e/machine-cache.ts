/** What a test is not about on a machine of its own: what set-up has made here is there already. */
import { readdir } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { rootPath, rootsDir } from '../../host-agent/images/root/root-file.ts';
import type { Installation } from '../../host-agent/setup/setup.ts';
import type { ServiceMachine } from './service-machine.ts';

const CACHE = '/var/lib/sandgate/cache';

/** runsc, the guest programs and the image `python`, for a host that is installed there. */
export async function fillCache(
  machine: Pick<ServiceMachine, 'run' | 'copyFlags'>,
  { image, guestDir }: Installation,
  cacheDir: string,
): Promise<void> {
  const inside = async (argv: string[]): Promise<void> => {
    const { code, stderr } = await machine.run(argv);
    if (code !== 0) throw new Error(`${argv[0]} on the machine: ${stderr}`);
  };
  const imageDir = dirname(image.rootfsPath);
  const target = join(CACHE, 'images/python', basename(imageDir));
  const roots = rootsDir(image.rootfsPath);
  await inside(['mkdir', '-p', join(target, basename(roots))]);
  const parts = (await readdir(imageDir)).filter((name) => name !== basename(roots));
  await inside(['cp', ...machine.copyFlags, ...parts.map((name) => join(imageDir, name)), target]);
  // That of these guest programs alone: others may lie there for a week, and the machine's disk is its memory.
  const root = rootPath(image.rootfsPath, basename(guestDir));
  await inside(['cp', ...machine.copyFlags, root, join(target, basename(roots))]);
  for (const part of ['runsc', 'guest'])
    await inside(['cp', ...machine.copyFlags, join(cacheDir, part), `${CACHE}/`]);
}
