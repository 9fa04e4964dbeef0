/** Images that were built elsewhere: from a registry by digest into sessions, used, removed, pruned. */
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import {
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { dirname, join } from 'node:path';
import { text } from 'node:stream/consumers';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { installAptPackages } from '../../host-agent/setup/apt-packages.ts';
import { setUp } from '../../host-agent/setup/setup.ts';
import { silentProgress } from '../../host-agent/setup/step.ts';
import { locations } from '../../scripts/locations.ts';
import { ARCHITECTURE, addIndex, writeLayout } from '../fixtures/image-layout.ts';
import {
  fetchImageTools,
  type ImageRegistry,
  type ImageTools,
  startRegistry,
  succeed,
} from '../fixtures/image-registry.ts';
import { tar } from '../fixtures/tar.ts';
import { PATIENCE_MS } from '../patience.ts';
import { Refused, type SessionClient } from './client.ts';
import { useStack } from './stack.ts';
import { until } from './until.ts';

const COMMAND = fileURLToPath(new URL('../../host-agent/sandgate-host.ts', import.meta.url));
const SETUP_TIMEOUT_MS = 600_000;

let root: string;
let cacheDir: string;
let layout: string;
let digest: string;
let tools: ImageTools;
let registry: ImageRegistry;

// The agent of this file has a store of its own, where the command looks for it too.
const stack = useStack((stateDir) => {
  mkdirSync(join(stateDir, 'root/var/lib'), { recursive: true });
  symlinkSync(stateDir, join(stateDir, 'root/var/lib/sandgate'));
  mkdirSync(join(stateDir, 'cache/images'), { recursive: true });
  const python = join(locations(process.env).cacheDir, 'images/python');
  spawnSync('cp', ['--archive', python, join(stateDir, 'cache/images')]);
  return { SANDGATE_IMAGES_DIR: join(stateDir, 'cache/images') };
});

beforeAll(async () => {
  const { stateDir } = stack().stack;
  root = join(stateDir, 'root');
  cacheDir = join(stateDir, 'cache');
  const installation = await setUp(locations(process.env), process.env, silentProgress);
  tools = await fetchImageTools(join(stateDir, 'tools'));
  registry = await startRegistry(tools.registry, join(stateDir, 'registry'));
  layout = join(stateDir, 'layout');
  digest = await buildImage(installation.image.rootfsPath);
  await installAptPackages(() => undefined, ['skopeo']);
  const target = `docker://${registry.host}/team/tools:1.0`;
  await succeed('skopeo', [
    'copy',
    '--quiet',
    '--preserve-digests',
    '--dest-tls-verify=false',
    `oci:${layout}:latest`,
    target,
  ]);
}, SETUP_TIMEOUT_MS);

afterAll(() => registry?.stop(), 60_000);

/** Upon a whole root file system a layer by hand: one file gone, one put through a link, one that wants to be root. */
async function buildImage(rootfsPath: string): Promise<string> {
  const { stateDir } = stack().stack;
  const base = join(stateDir, 'base.tar');
  await succeed('tar', ['--create', `--file=${base}`, `--directory=${rootfsPath}`, '--exclude=./dev/*', '.']);
  const upper = tar([
    { name: 'etc/.wh.debian_version' },
    { name: 'bin/hello', mode: 0o4755, content: '#!/bin/sh\necho "hello from $GREETER"\n' },
    { name: 'dev/sda', type: '4' },
  ]);
  return writeLayout(layout, {
    layers: [readFileSync(base), upper],
    environment: ['PATH=/usr/local/bin:/usr/bin:/bin', 'GREETER=the image', 'HOME=/root'],
  });
}

/** Not waited for on this thread: a connection that the gateway closes meanwhile must be seen to be closed. */
async function images(...argv: string[]): Promise<{ status: number | null; stdout: string; stderr: string }> {
  const child = spawn(process.execPath, [COMMAND, 'images', ...argv, '--root', root], {
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  const ended = once(child, 'close');
  const [stdout, stderr] = await Promise.all([text(child.stdout), text(child.stderr)]);
  await ended;
  return { status: child.exitCode, stdout, stderr };
}

/** The agent looks into its store every few seconds. */
function openOnceOffered(image: string): Promise<SessionClient> {
  return until(`the image ${image} is offered`, PATIENCE_MS, async () => {
    try {
      return await stack().open({ image });
    } catch (error: unknown) {
      if (error instanceof Refused && error.problem.code === 'image_not_found') return undefined;
      throw error;
    }
  });
}

function stored(): string[] {
  return readdirSync(join(cacheDir, 'images')).flatMap((name) => readdirSync(join(cacheDir, 'images', name)));
}

describe('images import', { timeout: 300_000 }, () => {
  test.each([
    ['a tag', () => `${registry.host}/team/tools:1.0`],
    ['a name', () => `${registry.host}/team/tools`],
  ])('refuses %s without a digest', async (_title, source) => {
    expect(await images('import', source())).toMatchObject({
      status: 2,
      stderr: expect.stringMatching(/named by its digest/),
    });
  });

  test('F31: refuses a digest that the registry does not have', async () => {
    const source = `${registry.host}/team/tools@sha256:${'0'.repeat(64)}`;
    expect(await images('import', source)).toMatchObject({
      status: 1,
      stderr: expect.stringMatching(/skopeo inspect/),
    });
    expect(readdirSync(join(cacheDir, 'work'))).toEqual([]);
  });

  test('F31: refuses what a registry sends in the place of a layer, and keeps nothing of it', async () => {
    const blob = await largestBlobOfRegistry();
    const whole = readFileSync(blob);
    const changed = Buffer.from(whole);
    changed[changed.length - 2000] = 0x41;
    writeFileSync(blob, changed);
    const refused = await images('import', `${registry.host}/team/tools@${digest}`);
    writeFileSync(blob, whole);
    expect(refused).toMatchObject({ status: 1, stderr: expect.stringMatching(/skopeo copy: .*digest/i) });
    expect(existsSync(join(cacheDir, 'images/tools', digest.slice('sha256:'.length)))).toBe(false);
    expect(readdirSync(join(cacheDir, 'work'))).toEqual([]);
  });

  test('brings an image that a running host offers at once, with its tools and environment', async () => {
    const imported = await images('import', `${registry.host}/team/tools:1.0@${digest}`);
    expect(imported).toMatchObject({ status: 0, stderr: '' });
    expect(imported.stdout).toContain(`tools  ${digest}`);
    expect(imported.stdout).toContain('tools: file, shell, python');
    expect(imported.stdout).toContain('1 device nodes or pipes left out, 1 set-id bits removed');
    const session = await openOnceOffered('tools');
    const ran = await session.sh(
      'hello; echo $HOME; id -u; ls /etc/debian_version; stat -c %a /usr/bin/hello',
    );
    const [greeting, home, user, mode] = ran.stdout.split('\n');
    expect({ greeting, home, mode }).toEqual({
      greeting: 'hello from the image',
      home: '/workspace',
      mode: '755',
    });
    expect(Number(user)).toBeGreaterThanOrEqual(100_000);
    expect(ran.stderr).toMatch(/No such file/);
    expect((await session.py('import os; os.environ["GREETER"]')).value).toBe("'the image'");
    expect(await images('remove', digest)).toMatchObject({
      status: 1,
      stderr: expect.stringMatching(/in use/),
    });
    await session.delete();
  });

  test('does nothing where the image is there already', async () => {
    const again = await images('import', `${registry.host}/team/tools@${digest}`);
    expect(again).toMatchObject({ status: 0, stdout: expect.stringMatching(/there already/) });
  });

  test('refuses the name of a recipe, and a second name for the same image', async () => {
    const source = `oci:${layout}@${digest}`;
    expect(await images('import', source, '--name', 'python')).toMatchObject({ status: 1 });
    expect(await images('import', source, '--name', 'other')).toMatchObject({
      status: 1,
      stderr: expect.stringMatching(/there already, as tools/),
    });
  });

  test('takes an archive, and of an index the build for this machine', async () => {
    const { size } = readDescriptor(layout);
    const index = addIndex(layout, [
      { digest: `sha256:${'1'.repeat(64)}`, size: 2, platform: { os: 'linux', architecture: 's390x' } },
      { digest, size, platform: { os: 'linux', architecture: ARCHITECTURE } },
    ]);
    const archive = join(dirname(layout), 'layout.tar');
    await succeed('tar', ['--create', `--file=${archive}`, `--directory=${layout}`, '.']);
    const imported = await images('import', `oci-archive:${archive}@${index}`, '--name', 'archived');
    expect(imported).toMatchObject({ status: 0, stderr: '' });
    const session = await openOnceOffered(index);
    expect((await session.sh('hello')).stdout).toBe('hello from the image\n');
    await session.delete();
  });

  test('unpacks as umoci does, but for what an image does not keep', async () => {
    const bundle = join(dirname(layout), 'bundle');
    await succeed(tools.umoci, ['unpack', '--image', `${layout}:latest`, bundle]);
    const ours = join(cacheDir, 'images/tools', digest.slice('sha256:'.length), 'rootfs');
    expect(await listing(ours)).toEqual(await listing(join(bundle, 'rootfs')));
  });
});

describe('images that nobody uses', { timeout: 300_000 }, () => {
  test('are removed by digest, and no longer offered', async () => {
    await until('no sandbox uses the image', PATIENCE_MS, async () =>
      (await images('remove', digest)).status === 0 ? true : undefined,
    );
    expect(stored()).not.toContain(digest.slice('sha256:'.length));
    await until('the image is offered no more', PATIENCE_MS, async () => {
      try {
        await (await stack().open({ image: digest })).delete();
        return undefined;
      } catch (error: unknown) {
        return error instanceof Refused && error.problem.code === 'image_not_found' ? true : undefined;
      }
    });
  });

  test('are pruned once no session started on them for so long', async () => {
    const [archived = ''] = readdirSync(join(cacheDir, 'images/archived'));
    expect(await images('prune')).toMatchObject({ status: 0, stdout: '0 MB freed\n' });
    expect(stored()).toContain(archived);
    const longAgo = new Date(Date.now() - 40 * 86_400_000);
    utimesSync(join(cacheDir, 'images/archived', archived, 'last-use'), longAgo, longAgo);
    expect(await images('prune')).toMatchObject({
      status: 0,
      stdout: expect.stringMatching(/removed archived/),
    });
    expect(stored()).not.toContain(archived);
    // The image that every host has stays.
    expect((await images('prune', '--unused-days', '0')).status).toBe(0);
    expect(existsSync(join(cacheDir, 'images/python'))).toBe(true);
  });
});

function readDescriptor(dir: string): { size: number } {
  return { size: readFileSync(join(dir, 'blobs/sha256', digest.slice('sha256:'.length))).length };
}

async function largestBlobOfRegistry(): Promise<string> {
  const storage = join(dirname(layout), 'registry/storage');
  const found = await succeed('find', [storage, '-name', 'data', '-size', '+1M']);
  return found.split('\n')[0] ?? '';
}

/** Type, permissions without set-id bits, size and target of everything but what the runtime brings. */
/** The link to the machine id is ours in every image, and of no time. */
async function listing(dir: string): Promise<string[]> {
  const pruned = ['dev', 'proc', 'sys', 'sandgate', 'workspace', 'tmp'].flatMap((name) => [
    '-path',
    `./${name}`,
    '-o',
  ]);
  const args = ['(', ...pruned, '-false', ')', '-prune', '-o', '-printf', '%y %m %P %l %T@ %s\\n'];
  const found = await succeed('find', ['.', ...args], dir);
  return found
    .split('\n')
    .map((line) => (line.startsWith('d') ? line.replace(/ \d+$/, '') : line))
    .map((line) => line.replace(/(\.\d+) /, ' '))
    .map((line) => line.replace(/^(\w) [2467](\d{3}) /, '$1 $2 '))
    .map((line) => line.replace(/^(l \d+ etc\/machine-id \S+) \d+/, '$1'))
    .toSorted();
}
