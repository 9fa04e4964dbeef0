/** What is compiled of the sources in this folder, for the agent's own process. */
import type { Artifact } from '../setup/compiled-folder.ts';

export const DIGEST_LIBRARY = 'sha256.node';

/** What it calls, of Node and of OpenSSL, is found in the process that loads it. */
export const DIGEST_ARTIFACTS: readonly Artifact[] = [
  {
    source: 'sha256.c',
    target: DIGEST_LIBRARY,
    compile: [
      '-shared',
      '-fPIC',
      '-nostdlib',
      '-fvisibility=hidden',
      '-O2',
      '-s',
      '-std=c11',
      '-Wall',
      '-Wextra',
      '-Werror',
    ],
  },
];
