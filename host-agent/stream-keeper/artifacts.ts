/** What is compiled of the sources in this folder, for the machine that the agent runs on. */
import type { Artifact } from '../setup/compiled-folder.ts';

export const STREAM_KEEPER_PROGRAM = 'stream-keeper';

export const STREAM_KEEPER_ARTIFACTS: readonly Artifact[] = [
  {
    source: 'stream-keeper.c',
    target: STREAM_KEEPER_PROGRAM,
    compile: ['-static', '-Os', '-s', '-std=c11', '-D_GNU_SOURCE', '-Wall', '-Wextra', '-Werror'],
  },
];
