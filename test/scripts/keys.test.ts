/** `npm run keys` as an operator runs it. */
import { execFile } from 'node:child_process';
import { mkdtemp, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { type Secrets, SecretsSchema } from '../../scripts/production-secrets.ts';

const script = fileURLToPath(new URL('../../scripts/keys.ts', import.meta.url));
let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'sandgate-keys-'));
});
afterAll(() => rm(folder, { recursive: true, force: true }));

function keys(...args: string[]): Promise<{ exitCode: number; stdout: string; stderr: string }> {
  return new Promise((resolve) => {
    const child = execFile(process.execPath, [script, ...args], (_error, stdout, stderr) => {
      resolve({ exitCode: child.exitCode ?? -1, stdout, stderr });
    });
  });
}

async function secretsOf(file: string): Promise<Secrets> {
  return SecretsSchema.parse(JSON.parse(await readFile(file, 'utf8')));
}

test('secrets are written for their owner alone, and a rotation changes one of them', async () => {
  const [first, second] = [join(folder, 'secrets.json'), join(folder, 'new.json')];
  expect(await keys(first)).toMatchObject({ exitCode: 0, stdout: expect.stringMatching(/^ {2}op_\S+$/m) });
  expect((await stat(first)).mode & 0o777).toBe(0o600);
  expect(await keys('--rotate', 'grant', first, second)).toMatchObject({ exitCode: 0 });
  const [former, rotated] = [await secretsOf(first), await secretsOf(second)];
  expect(rotated.GRANT_KEY).not.toBe(former.GRANT_KEY);
  expect({ ...rotated, GRANT_KEY: '' }).toEqual({ ...former, GRANT_KEY: '' });
});

test('what was typed wrong is told in one line', async () => {
  const [other, next] = [join(folder, 'other.json'), join(folder, 'next.json')];
  await writeFile(other, 'no secrets');
  const rows: [string[], RegExp][] = [
    [[], /^sandgate: npm run keys -- FILE, or .*$/],
    [['--rotat', 'grant', other, next], /^sandgate: Unknown option '--rotat'$/],
    [['--rotate', 'root', other, next], /^sandgate: npm run keys -- FILE, or .*$/],
    [['--rotate', 'grant', other], /^sandgate: npm run keys -- FILE, or .*$/],
    [['--rotate', 'grant', join(folder, 'none.json'), next], /^sandgate: \S+none\.json cannot be read$/],
    [['--rotate', 'grant', other, next], /^sandgate: \S+other\.json does not have the secrets of an edge$/],
  ];
  for (const [args, line] of rows) {
    const { exitCode, stdout, stderr } = await keys(...args);
    expect({ exitCode, stdout }).toEqual({ exitCode: 1, stdout: '' });
    expect(stderr.trimEnd()).toMatch(line);
  }
});
