/** An apt of our own beside the machine's: its sources, lists and cache; the machine's proxy settings stay in force. */
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';

const KEYRING = '/usr/share/keyrings/debian-archive-keyring.gpg';

export type PrivateApt = {
  /** `-o` options to put before an apt-get or apt-cache command. */
  options: string[];
};

export async function privateApt(dir: string, mainUri: string, suite: string): Promise<PrivateApt> {
  const sources = join(dir, 'sources.list');
  await mkdir(join(dir, 'state/lists/partial'), { recursive: true });
  await mkdir(join(dir, 'cache/archives/partial'), { recursive: true });
  await mkdir(join(dir, 'none'), { recursive: true });
  await writeFile(sources, `deb [signed-by=${KEYRING}] ${mainUri} ${suite} main\n`);
  const settings = {
    'Dir::Etc::sourcelist': sources,
    'Dir::Etc::sourceparts': join(dir, 'none'),
    'Dir::Etc::preferences': '/dev/null',
    'Dir::Etc::preferencesparts': join(dir, 'none'),
    'Dir::State': join(dir, 'state'),
    'Dir::State::status': '/dev/null',
    'Dir::Cache': join(dir, 'cache'),
    'Acquire::Languages': 'none',
    // apt's unprivileged download user may not enter our folder, which only root may read.
    'APT::Sandbox::User': 'root',
  };
  return { options: Object.entries(settings).flatMap(([name, value]) => ['-o', `${name}=${value}`]) };
}
