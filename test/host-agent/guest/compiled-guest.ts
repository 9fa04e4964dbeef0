/** The guest's programs, compiled from the sources into a folder of this test run. */
import { execFileSync } from 'node:child_process';
import { copyFileSync, mkdirSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { GUEST_ARTIFACTS } from '../../../host-agent/guest/artifacts.ts';

const SOURCES = join(import.meta.dirname, '../../../host-agent/guest');

export function compileGuest(folder: string): void {
  for (const { source, target, compile } of GUEST_ARTIFACTS) {
    const from = join(SOURCES, source);
    const to = join(folder, target);
    mkdirSync(dirname(to), { recursive: true });
    if (compile === null) copyFileSync(from, to);
    else execFileSync('musl-gcc', [...compile, '-o', to, from]);
  }
}
