/** Makes the root file of an image at set-up, so that the first session on it does not wait for it. */
import { basename } from 'node:path';
import { RootFiles } from '../images/root/root-files.ts';
import { openImageStore } from '../images/store.ts';
import { SetupFailure } from './failure.ts';
import type { Outcome } from './step.ts';

export async function installImageRoot(
  { imagesDir, digest, guestDir }: { imagesDir: string; digest: string; guestDir: string },
  detail: (text: string) => void,
): Promise<Outcome<undefined>> {
  const image = await openImageStore(imagesDir).findByDigest(digest);
  if (!image.ok) throw new SetupFailure(image.detail);
  detail('laying it out');
  const root = await new RootFiles({ guestDir, guest: basename(guestDir) }).of(image.value);
  if (!root.ok) throw new SetupFailure(`cannot make the root of image ${image.value.name}: ${root.detail}`);
  return { value: undefined, did: root.value.id.slice(0, 12) };
}
