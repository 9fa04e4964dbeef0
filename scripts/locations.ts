/** Where Sandgate keeps things on this machine. */
import { homedir } from 'node:os';
import { join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';

export type Locations = {
  repositoryDir: string;
  /** Keys, journal, the edge's databases: what makes this installation itself. */
  stateDir: string;
  /** What can be made again and is shared by every checkout on the machine: runsc, images, guest programs. */
  cacheDir: string;
};

const MACHINE_CACHE_DIR = '/var/cache/sandgate';

/** Reads the locations from the environment; both folders become absolute. */
export function locations(environment: NodeJS.ProcessEnv): Locations {
  const repositoryDir = resolve(fileURLToPath(new URL('..', import.meta.url)));
  const absolute = (path: string): string =>
    path.startsWith('~/') ? join(homedir(), path.slice(2)) : resolve(repositoryDir, path);
  return {
    repositoryDir,
    stateDir: absolute(environment.SANDGATE_STATE_DIR || '.sandgate'),
    cacheDir: absolute(environment.SANDGATE_CACHE_DIR || MACHINE_CACHE_DIR),
  };
}
