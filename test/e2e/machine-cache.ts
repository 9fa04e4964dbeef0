/** What a test is not about on a machine of its own: what set-up has made here is there already. */
import { join } from 'node:path';
import type { Installation } from '../../host-agent/setup/setup.ts';
import type { PrivateMachine } from '../fixtures/private-machine.ts';

const CACHE = '/var/lib/sandgate/cache';

/** runsc, the guest programs and the image `python`, for a host that is installed there. */
export async function fillCache(
  machine: PrivateMachine,
  { image }: Installation,
  cacheDir: string,
): Promise<void> {
  await machine.run(['mkdir', '-p', `${CACHE}/images/python`]);
  await machine.run(['cp', '-a', image.rootfsPath.replace(/\/rootfs$/, ''), `${CACHE}/images/python/`]);
  for (const part of ['runsc', 'guest']) await machine.run(['cp', '-a', join(cacheDir, part), `${CACHE}/`]);
}
