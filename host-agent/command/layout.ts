/** Where an installed host lies: everything in one folder, and two files that tell the machine of it. */
import { resolve, sep } from 'node:path';
import { fileURLToPath } from 'node:url';

const STATE_DIR = '/var/lib/sandgate';
export const SERVICE = 'sandgate-host.service';

export interface Layout {
  /** `/`, or the root of a machine that is being prepared. */
  root: string;
  stateDir: string;
  /** The program: a copy, so that the folder it was installed from may go. */
  programDir: string;
  /** runsc, images, guest programs. */
  cacheDir: string;
  imagesDir: string;
  /** Identity, journal, bundles: the state folder of the agent itself. */
  hostDir: string;
  settingsPath: string;
  unitPath: string;
  /** What `systemctl enable` would make. */
  wantedPath: string;
  commandPath: string;
}

export function layoutOf(root: string): Layout {
  const base = resolve(root);
  const at = (path: string): string => (base === sep ? path : `${base}${path}`);
  return {
    root: base,
    stateDir: at(STATE_DIR),
    programDir: at(`${STATE_DIR}/program`),
    cacheDir: at(`${STATE_DIR}/cache`),
    imagesDir: at(`${STATE_DIR}/cache/images`),
    hostDir: at(`${STATE_DIR}/host`),
    settingsPath: at(`${STATE_DIR}/host.env`),
    unitPath: at(`/etc/systemd/system/${SERVICE}`),
    wantedPath: at(`/etc/systemd/system/multi-user.target.wants/${SERVICE}`),
    commandPath: at('/usr/local/bin/sandgate-host'),
  };
}

/** A path as the machine itself will see it. */
export function insideRoot({ root }: Layout, path: string): string {
  return root !== sep && path.startsWith(`${root}/`) ? path.slice(root.length) : path;
}

/** The folder that this very program runs from. */
export function sourceDir(): string {
  return resolve(fileURLToPath(new URL('../..', import.meta.url)));
}
