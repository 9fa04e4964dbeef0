/** The root files of the images of one agent: made when they are needed first, once however many need them. */
import { utimes } from 'node:fs/promises';
import { failure, type Outcome, success } from '../../../shared/errors.ts';
import type { Image, ImageStore } from '../store.ts';
import { buildRootFile } from './build-root.ts';
import { type RootFile, readRootFile, rootPath } from './root-file.ts';

type RootImage = Pick<Image, 'rootfsPath' | 'builtAt'>;

export class RootFiles {
  readonly #programs: { guestDir: string; guest: string };
  readonly #making = new Map<string, Promise<RootFile>>();

  /** `guest`: digest of the programs in the guest folder. */
  constructor(programs: { guestDir: string; guest: string }) {
    this.#programs = programs;
  }

  /** One after the other, until it shall stop: whoever needs one meanwhile does not wait for the others. */
  async prepare(images: ImageStore, mayGoOn: () => boolean): Promise<void> {
    for (const image of await images.list()) if (mayGoOn()) await this.of(image);
  }

  async of({ rootfsPath, builtAt }: RootImage): Promise<Outcome<RootFile>> {
    const path = rootPath(rootfsPath, this.#programs.guest);
    const there = await readRootFile(path);
    if (there !== undefined) {
      const now = new Date();
      await utimes(path, now, now).catch(() => undefined);
      return success(there);
    }
    const making = this.#making.get(path) ?? buildRootFile({ rootfsPath, builtAt, ...this.#programs });
    this.#making.set(path, making);
    try {
      return success(await making);
    } catch (error: unknown) {
      return failure('sandbox_failed', error instanceof Error ? error.message : 'the root was not made');
    } finally {
      this.#making.delete(path);
    }
  }
}
