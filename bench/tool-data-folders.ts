/**
 * The public data sets of the search bench: the parts that are needed, at one commit of each, cloned once beside the other
 * downloads of this machine. They are others' and no part of this project.
 */
import { existsSync } from 'node:fs';
import { mkdir, mkdtemp, rename, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { run } from '../host-agent/process/run-command.ts';

interface DataSet {
  name: string;
  url: string;
  commit: string;
  folders: readonly string[];
}

const GORILLA: DataSet = {
  name: 'gorilla',
  url: 'https://github.com/ShishirPatil/gorilla.git',
  commit: '6ea57973c7a6097fd7c5915698c54c17c5b1b6c8',
  folders: ['berkeley-function-call-leaderboard/bfcl_eval/data', 'data/apizoo'],
};
const SEAL_TOOLS: DataSet = {
  name: 'seal-tools',
  url: 'https://github.com/fairyshine/Seal-Tools.git',
  commit: 'ce753ecd60ed08dd376984035de531ab8421f1c6',
  folders: ['Seal-Tools_Dataset'],
};

const FETCH_TIMEOUT_MS = 300_000;

export type ToolDataFolders =
  | { ok: true; gorilla: string; sealTools: string }
  | { ok: false; reason: string };

export async function toolDataFolders(cacheDir: string): Promise<ToolDataFolders> {
  const root = join(cacheDir, 'tool-data');
  await mkdir(root, { recursive: true });
  for (const set of [GORILLA, SEAL_TOOLS]) {
    const reason = await fetched(set, root);
    if (reason !== undefined) return { ok: false, reason };
  }
  return { ok: true, gorilla: join(root, GORILLA.name), sealTools: join(root, SEAL_TOOLS.name) };
}

/** Why it could not be had; undefined where it is there. */
async function fetched({ name, url, commit, folders }: DataSet, root: string): Promise<string | undefined> {
  const kept = join(root, name);
  if (existsSync(kept)) return undefined;
  const work = await mkdtemp(join(root, `${name}-`));
  const signal = AbortSignal.timeout(FETCH_TIMEOUT_MS);
  const steps = [
    ['init', '--quiet'],
    ['sparse-checkout', 'set', ...folders],
    ['fetch', '--quiet', '--depth=1', '--filter=blob:none', url, commit],
    ['checkout', '--quiet', 'FETCH_HEAD'],
  ];
  try {
    for (const step of steps) {
      const environment = { ...process.env, GIT_TERMINAL_PROMPT: '0' };
      const { exitCode, tail } = await run('git', step, { cwd: work, environment, signal });
      if (exitCode !== 0) return `${name}: git ${step[0]}: ${tail.split('\n').at(-1) ?? ''}`;
    }
    await rename(work, kept);
    return undefined;
  } finally {
    await rm(work, { recursive: true, force: true });
  }
}
