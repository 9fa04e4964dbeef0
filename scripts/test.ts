/** `npm test`: sets the machine up, runs every suite, and closes with one line `N passed, N failed`. */
import { spawn } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { runMain, SetupFailure } from '../host-agent/setup/failure.ts';
import { setUp } from '../host-agent/setup/setup.ts';
import { terminalProgress } from '../host-agent/setup/step.ts';
import { locations } from './locations.ts';
import { exitCodeOf, readTestReport } from './test-report.ts';

/**
 * What `npm run test:long` runs: `images` builds every image of the repository, several GB, and `long` takes hours. And what
 * `npm run test:machine` runs, on a machine of its own.
 */
const ON_DEMAND_PROJECTS = ['images', 'long', 'machine'];

await runMain(async () => {
  const places = locations(process.env);
  console.log('Sandgate: set-up');
  const installation = await setUp(places, process.env, terminalProgress(process.stdout));
  const workDir = await mkdtemp(join(tmpdir(), 'sandgate-test-'));
  const reportPath = join(workDir, 'report.json');
  try {
    const exitCode = await runVitest(reportPath, {
      ...process.env,
      SANDGATE_CACHE_DIR: places.cacheDir,
      SANDGATE_RUNSC: installation.runscPath,
      SANDGATE_IMAGES_DIR: installation.imagesDir,
      SANDGATE_GUEST_DIR: installation.guestDir,
      SANDGATE_DIGEST_LIBRARY: installation.digestLibrary,
    });
    const count = await readTestReport(reportPath);
    if (count === undefined)
      throw new SetupFailure(`vitest ended with exit code ${exitCode} and left no report`);
    console.log(`${count.passed} passed, ${count.failed} failed`);
    return exitCodeOf(count, exitCode);
  } finally {
    await rm(workDir, { recursive: true, force: true });
  }
});

/** Arguments after `--` go to vitest: `npm test -- --project=node`. */
function runVitest(reportPath: string, environment: NodeJS.ProcessEnv): Promise<number> {
  const vitest = new URL('../node_modules/vitest/vitest.mjs', import.meta.url).pathname;
  const args = [vitest, 'run', '--reporter=default', '--reporter=json', `--outputFile.json=${reportPath}`];
  return new Promise((resolve) => {
    const chosen = process.argv.slice(2);
    const projects = chosen.some((argument) => argument.startsWith('--project'))
      ? []
      : ON_DEMAND_PROJECTS.map((project) => `--project=!${project}`);
    const command = [process.execPath, ...args, ...projects, ...chosen];
    const child = spawn('setpriv', ['--pdeathsig', 'TERM', '--', ...command], {
      stdio: ['ignore', 'inherit', 'inherit'],
      env: environment,
    });
    child.once('error', () => resolve(127));
    child.once('exit', (code) => resolve(code ?? 1));
  });
}
