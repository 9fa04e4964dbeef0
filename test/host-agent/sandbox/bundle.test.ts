import { mkdtemp, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { Bundles } from '../../../host-agent/sandbox/bundle.ts';
import { buildSpec } from '../../../host-agent/sandbox/spec.ts';

const ID = 'sbx-0011223344556677';
let dir: string;
let bundles: Bundles;

beforeEach(async () => {
  dir = await mkdtemp(join(tmpdir(), 'bundles-'));
  bundles = new Bundles(dir);
});

afterEach(() => rm(dir, { recursive: true, force: true }));

const specOf = () =>
  buildSpec({
    hostname: ID,
    limits: { cpus: 1, memory_bytes: 1, processes: 8, workspace_bytes: 1, tmp_bytes: 1 },
    rootPath: '/images/root.erofs',
    storage: bundles.storageOf(ID),
    userId: 100_000,
    cgroupPath: '/x/y',
  });

it('holds the specification and empty storage, for root alone', async () => {
  await bundles.write(ID, specOf());
  expect(JSON.parse(await readFile(join(dir, ID, 'config.json'), 'utf8'))).toEqual(specOf());
  for (const path of [bundles.pathOf(ID), ...Object.values(bundles.storageOf(ID))]) {
    expect((await stat(path)).mode & 0o777).toBe(0o700);
  }
  await expect(bundles.write(ID, specOf())).rejects.toThrow('EEXIST');
  await bundles.remove(ID);
  await bundles.remove(ID);
  await expect(stat(bundles.pathOf(ID))).rejects.toThrow('ENOENT');
});

it('finds the line that says why a sentry panicked, and nothing where it did not', async () => {
  expect(await bundles.panic(ID)).toBeUndefined();
  await bundles.write(ID, specOf());
  await writeFile(join(dir, ID, 'panic.log'), 'noise\npanic: out of threads\n\ngoroutine 1:\n');
  expect(await bundles.panic(ID)).toBe('panic: out of threads');
});
