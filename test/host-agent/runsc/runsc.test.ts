import { spawnSync } from 'node:child_process';
import { mkdtemp, readdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { spawn } from '../../../host-agent/process/spawn.ts';
import { requireAllowed } from '../../../host-agent/runsc/flags.ts';
import { Runsc } from '../../../host-agent/runsc/runsc.ts';
import { type FakeAnswer, makeFakeRunsc } from '../../fixtures/fake-runsc.ts';

const ROOT = '/tmp/no-such-runsc-root';

async function open(path: string): Promise<Runsc> {
  const runsc = await Runsc.open(path, ROOT);
  if (!runsc.ok) throw new Error(runsc.detail);
  return runsc.value;
}

describe('the version of runsc', () => {
  it.each(['0.0~20240729.0', 'release-20240729.0'])('may be %s', async (printed) => {
    await using fake = await makeFakeRunsc({
      '--version': [{ stdout: `runsc version ${printed}\nspec: 1\n` }],
    });
    expect((await open(fake.path)).version).toEqual({ printed, release: '20240729.0' });
  });

  it.each<FakeAnswer>([
    { stdout: 'runsc version release-20260727.0\n' },
    { stdout: 'runsc version 0.0~20221219.0\n' },
    { stdout: 'runsc version unknown\n' },
    { stdout: 'runc version 1.1.5\n' },
    { stdout: '' },
    { stdout: 'runsc version release-20240729.0\n', exitCode: 1 },
  ])('is refused when the program answers %o', async (answer) => {
    await using fake = await makeFakeRunsc({ '--version': [answer] });
    expect(await Runsc.open(fake.path, ROOT)).toMatchObject({ ok: false, code: 'sandbox_failed' });
  });

  it('is refused when there is no program', async () => {
    const opened = await Runsc.open('/no/such/runsc', ROOT);
    expect(opened).toMatchObject({ ok: false });
    expect(opened.ok ? '' : opened.detail).toContain('ENOENT');
  });
});

describe('the flags', () => {
  const EXPECTED = [
    `--root=${ROOT}`,
    '--platform=systrap',
    '--network=none',
    '--host-uds=none',
    '--host-fifo=none',
    '--net-raw=false',
    '--overlay2=none',
    '--directfs=false',
    '--oci-seccomp',
    '--watchdog-action=panic',
    '--allow-flag-override=false',
  ];

  it('are the same for every subcommand', async () => {
    await using fake = await makeFakeRunsc({
      run: [{}],
      restore: [{}],
      checkpoint: [{}],
      list: [{ stdout: 'null' }],
    });
    const runsc = await open(fake.path);
    await runsc.run('a', '/bundle').exited;
    await runsc.restore('a', '/bundle', '/image').exited;
    await runsc.checkpoint('a', '/image', 1000);
    await runsc.list();
    const calls = (await fake.calls()).slice(1);
    expect(calls.map((argv) => argv.filter((argument) => !argument.startsWith('-'))[0])).toEqual([
      'run',
      'restore',
      'checkpoint',
      'list',
    ]);
    for (const argv of calls) expect(argv).toEqual(expect.arrayContaining(EXPECTED));
  });

  it.each([
    '--rootless',
    '--ignore-cgroups',
    '--network=host',
    '--network=sandbox',
    '-network=host',
    '--host-uds=open',
    '--host-fifo=open',
    '--profile',
    '--profile-cpu=/x',
    '--debug',
    '--debug-log=/x',
    '--strace',
    '--nvproxy',
    '--tpuproxy',
    '--TESTONLY-unsafe-nonroot',
    '--EXPERIMENTAL-xdp=ns',
  ])('never hold %s', (flag) => {
    expect(() => requireAllowed(['--root=/x', flag, 'run', 'a'])).toThrow(flag);
  });

  it('cannot come in by way of an id', () => {
    return makeFakeRunsc({}).then(async (made) => {
      await using fake = made;
      const runsc = await open(fake.path);
      for (const id of ['--rootless', '', '../x', 'a b', 'a\0b', 'x'.repeat(65)]) {
        await expect(runsc.delete(id, 0)).rejects.toThrow(TypeError);
        expect(() => runsc.run(id, '/bundle')).toThrow(TypeError);
      }
    });
  });
});

describe('what runsc prints', () => {
  it('is parsed, and an empty list is null', async () => {
    const container = { ociVersion: '1.2.0', id: 'a', status: 'running', pid: 7, bundle: '/b', new: 1 };
    await using fake = await makeFakeRunsc({
      list: [{ stdout: 'null\n' }, { stdout: JSON.stringify([container]) }],
    });
    const runsc = await open(fake.path);
    const parsed = { id: 'a', status: 'running', pid: 7, bundle: '/b' };
    expect(await runsc.list()).toEqual({ ok: true, value: [] });
    expect(await runsc.list()).toEqual({ ok: true, value: [parsed] });
  });

  it.each(['', '{', '[{"id":1}]', '[{"id":"a","status":"odd","bundle":"/b"}]'])(
    'is refused when it is %s',
    async (stdout) => {
      await using fake = await makeFakeRunsc({ list: [{ stdout }] });
      expect(await (await open(fake.path)).list()).toMatchObject({ ok: false, code: 'sandbox_failed' });
    },
  );

  it('on a failure gives its last line as the reason', async () => {
    await using fake = await makeFakeRunsc({
      list: [{ stderr: 'first\nloading container: file does not exist\n', exitCode: 128 }],
    });
    const listed = await (await open(fake.path)).list();
    expect(listed).toMatchObject({
      ok: false,
      detail: 'runsc list: exit 128: loading container: file does not exist',
    });
  });
});

describe('delete', () => {
  const stateOf = (id: string) => [
    `${id}_sandbox:${id}.state`,
    `${id}_sandbox:${id}.lock`,
    `runsc-${id}.sock`,
  ];

  it('kills what lives of a container and takes what runsc knew of it, and touches no other', async () => {
    await using fake = await makeFakeRunsc({});
    const root = await mkdtemp(join(tmpdir(), 'runsc-root-'));
    try {
      for (const name of [...stateOf('a'), ...stateOf('b')]) await writeFile(join(root, name), '');
      // To the process table these are the sentries of two containers.
      const [doomed, other] = ['a', 'b'].map((id) =>
        spawn({
          file: process.execPath,
          argv: ['-e', 'setInterval(() => {}, 1000)', '--', `--root=${root}`, id],
          environment: {},
        }),
      );
      const opened = await Runsc.open(fake.path, root);
      if (!opened.ok) throw new Error(opened.detail);
      expect(await opened.value.delete('a', 20_000)).toEqual({ ok: true, value: null });
      expect((await doomed?.exited)?.signal).toBe('SIGKILL');
      expect((await readdir(root)).sort()).toEqual(stateOf('b').sort());
      expect(await opened.value.sandboxProcesses()).toEqual([{ pid: other?.pid, sandboxId: 'b' }]);
      other?.kill('SIGKILL');
      await other?.exited;
      expect(await opened.value.delete('b', 0)).toEqual({ ok: true, value: null });
      expect(await opened.value.delete('b', 0)).toEqual({ ok: true, value: null });
      expect(await readdir(root)).toEqual([]);
    } finally {
      await rm(root, { recursive: true, force: true });
    }
  });
});

it('out of descriptors fails, and does not take the agent with it', async () => {
  await using fake = await makeFakeRunsc({ run: [{}] });
  const program = fileURLToPath(new URL('../../fixtures/runsc-without-descriptors.ts', import.meta.url));
  const { status, stdout, stderr } = spawnSync(
    '/bin/sh',
    ['-c', 'ulimit -n 64 && exec "$0" "$@"', process.execPath, program, fake.path],
    { encoding: 'utf8', env: { UV_THREADPOOL_SIZE: '1' } },
  );
  expect({ status, stderr }).toEqual({ status: 0, stderr: '' });
  expect(JSON.parse(stdout)).toEqual({
    code: 'EMFILE',
    startFailure: expect.stringContaining('EMFILE'),
    listed: expect.objectContaining({ ok: false, detail: expect.stringContaining('EMFILE') }),
  });
});
