/** The folder of one sandbox on the host: its specification, what it stores, and what runsc logs about it. */
import { mkdir, open, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { OciSpec } from './oci.ts';

const CONFIG_FILE = 'config.json';
const PANIC_LOG_BYTES = 4096;

export class Bundles {
  readonly dir: string;

  constructor(dir: string) {
    this.dir = dir;
  }

  pathOf(sandboxId: string): string {
    return join(this.dir, sandboxId);
  }

  storageOf(sandboxId: string): { workspace: string; tmp: string } {
    const path = join(this.pathOf(sandboxId), 'storage');
    return { workspace: join(path, 'workspace'), tmp: join(path, 'tmp') };
  }

  async write(sandboxId: string, spec: OciSpec): Promise<void> {
    const path = this.pathOf(sandboxId);
    await mkdir(path, { mode: 0o700 });
    for (const directory of Object.values(this.storageOf(sandboxId))) {
      await mkdir(directory, { recursive: true, mode: 0o700 });
    }
    await writeFile(join(path, CONFIG_FILE), JSON.stringify(spec), { mode: 0o600 });
  }

  async remove(sandboxId: string): Promise<void> {
    await rm(this.pathOf(sandboxId), { recursive: true, force: true });
  }

  /** First line of the sentry's panic, or undefined when it did not panic. For the log of the host only. */
  async panic(sandboxId: string): Promise<string | undefined> {
    const text = await readStart(join(this.pathOf(sandboxId), 'panic.log'));
    return text
      .split('\n')
      .find((line) => /^(panic|fatal error|runtime: |SIG)/.test(line))
      ?.slice(0, 256);
  }
}

async function readStart(path: string): Promise<string> {
  try {
    await using file = await open(path, 'r');
    const { bytesRead, buffer } = await file.read(Buffer.alloc(PANIC_LOG_BYTES), 0, PANIC_LOG_BYTES, 0);
    return buffer.toString('utf8', 0, bytesRead);
  } catch {
    return '';
  }
}
