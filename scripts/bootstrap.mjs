/**
 * Brings node_modules up to the lockfile. Runs on the machine's own Node before anything else is installed, so it
 * imports nothing but Node itself; all that follows runs on the Node that the lockfile brings.
 */
import { spawn } from 'node:child_process';
import { existsSync, statSync } from 'node:fs';
import { delimiter, dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const OLDEST_NODE = 20;
const MAX_OUTPUT_LENGTH = 64 * 1024;
/** Few and short retries: without a network the reason should be told soon. */
const NPM_CI = [
  'ci',
  '--no-audit',
  '--no-fund',
  '--loglevel=error',
  '--fetch-retries=2',
  '--fetch-retry-mintimeout=1000',
  '--fetch-retry-maxtimeout=5000',
];
const repositoryDir = dirname(dirname(fileURLToPath(import.meta.url)));

process.exitCode = await bootstrap();

async function bootstrap() {
  const major = Number(process.versions.node.split('.')[0]);
  if (major < OLDEST_NODE)
    return fail(`Node ${OLDEST_NODE} or newer is needed, this is ${process.versions.node}`);
  if (!isStale()) return 0;

  const startedAt = Date.now();
  const elapsed = () => `${((Date.now() - startedAt) / 1000).toFixed(1)} s`;
  const { isTTY } = process.stdout;
  if (!isTTY) console.log('  node packages … npm ci');
  const timer = setInterval(
    () => isTTY && process.stdout.write(`\r  node packages … ${elapsed()}  npm ci `),
    250,
  );
  const { exitCode, output } = await npmCi();
  clearInterval(timer);
  if (isTTY) process.stdout.write('\r\u001b[2K');
  console.log(`  node packages … ${elapsed()}  ${exitCode === 0 ? 'installed' : 'failed'}`);
  if (exitCode !== 0) return fail(reasonOf(output, exitCode));
  // npm skips the Node package of a machine it has none for, without a word.
  if (existsSync(join(repositoryDir, 'node_modules/.bin/node'))) return 0;
  return fail(`there is no Node package for ${process.platform} ${process.arch}`);
}

/** npm writes its own lockfile last: one that is absent or older means an install that is missing, cut or out of date. */
function isStale() {
  const installed = join(repositoryDir, 'node_modules', '.package-lock.json');
  const wanted = join(repositoryDir, 'package-lock.json');
  return !existsSync(installed) || statSync(installed).mtimeMs < statSync(wanted).mtimeMs;
}

function npmCi() {
  // npm ci deletes node_modules, with it the Node that an earlier install put first on the path.
  const path = (process.env.PATH ?? '')
    .split(delimiter)
    .filter((dir) => !dir.endsWith('node_modules/.bin'))
    .join(delimiter);
  return new Promise((resolve) => {
    const child = spawn('npm', NPM_CI, {
      cwd: repositoryDir,
      env: { ...process.env, PATH: path },
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    let output = '';
    const keep = (chunk) => {
      output = (output + chunk).slice(-MAX_OUTPUT_LENGTH);
    };
    child.stdout.on('data', keep);
    child.stderr.on('data', keep);
    child.on('error', (error) => resolve({ exitCode: 127, output: String(error) }));
    child.on('close', (exitCode) => resolve({ exitCode, output }));
  });
}

function reasonOf(output, exitCode) {
  if (exitCode === 127) return 'npm is not installed (Debian: apt-get install npm)';
  if (/ENOSPC/.test(output)) return `no space left on the disk of ${repositoryDir}`;
  if (/ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ECONNRESET|ETIMEDOUT|ENETUNREACH|network/i.test(output)) {
    return 'no network: npm cannot reach its registry';
  }
  const first =
    output.split('\n').find((line) => line.startsWith('npm error')) ?? output.trim().split('\n').at(-1);
  return `npm ci failed: ${first || `exit code ${exitCode}`}`;
}

function fail(reason) {
  console.error(`sandgate: ${reason}`);
  return 1;
}
