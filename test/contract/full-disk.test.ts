/** The disk of the host is full under living sandboxes: on a small file system that holds what they write. */
import { execFileSync } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { SILENT_LOG } from '../../host-agent/logging/log.ts';
import type { Sandbox } from '../../host-agent/sandbox/port.ts';
import { RunscSandboxes } from '../../host-agent/sandbox/runsc-sandboxes.ts';
import { setUp } from '../../host-agent/setup/setup.ts';
import { silentProgress } from '../../host-agent/setup/step.ts';
import { locations } from '../../scripts/locations.ts';
import type { ResourceLimits } from '../../shared/session.ts';
import { LIMITS, newSandboxId, python, shell } from './subject.ts';

const MIB = 1024 * 1024;
/** The host keeps 512 MiB free of what it promises. */
const DISK_BYTES = 900 * MIB;
const STORED: ResourceLimits = { ...LIMITS, workspace_bytes: 64 * MIB, tmp_bytes: 16 * MIB };

let stateDir: string;
let sandboxes: RunscSandboxes;
let imageDigest: string;

beforeAll(async () => {
  const installation = await setUp(locations(process.env), process.env, silentProgress);
  imageDigest = installation.image.digest;
  stateDir = await mkdtemp(join(tmpdir(), 'sandgate-full-disk-'));
  execFileSync('mount', ['-t', 'tmpfs', '-o', `size=${DISK_BYTES}`, 'tmpfs', stateDir]);
  const opened = await RunscSandboxes.open({
    ...installation,
    stateDir,
    cgroupParent: `/sandgate-full-disk-${process.pid}`,
    capacity: 4,
    caps: LIMITS,
    log: SILENT_LOG,
  });
  if (!opened.ok) throw new Error(opened.detail);
  sandboxes = opened.value;
}, 600_000);

afterAll(async () => {
  await sandboxes?.stop();
  execFileSync('umount', [stateDir]);
  await rm(stateDir, { recursive: true, force: true });
});

async function start(): Promise<Sandbox> {
  const started = await sandboxes.start({
    sandboxId: newSandboxId(),
    imageDigest,
    limits: STORED,
    environment: {},
  });
  if (!started.ok) throw new Error(`${started.code}: ${started.detail}`);
  return started.value;
}

const fill = async (): Promise<void> => {
  await writeFile(join(stateDir, 'filler'), Buffer.alloc(DISK_BYTES)).catch(() => undefined);
};

/** Each page of a file is written by way of a mapping, where no error can be told but by a signal. */
const WRITE_MAPPED = [
  'import mmap',
  'file = open("/workspace/mapped", "w+b")',
  'file.truncate(40 << 20)',
  'pages = mmap.mmap(file.fileno(), 40 << 20)',
  'for at in range(0, 40 << 20, 4096): pages[at] = 1',
].join('\n');
const WRITE = 'head -c 40M /dev/zero > /workspace/big; echo rc=$?';

describe('F27 a full disk under sandboxes', () => {
  it('F27 is told to who writes, lets no other begin, and is over when there is room', async () => {
    const [writer, mapper, neighbour] = [await start(), await start(), await start()];
    await shell(neighbour, 'echo kept > /workspace/kept');
    await python(neighbour, 'kept = 41');
    await fill();
    const written = await shell(writer, WRITE);
    expect(written).toMatchObject({ status: 'succeeded', stdout: 'rc=1\n' });
    expect(written.stderr).toContain('No space left on device');
    expect(await python(mapper, WRITE_MAPPED)).toMatchObject({ status: 'failed', signal: 'SIGBUS' });
    for (const sandbox of [writer, mapper])
      expect((await shell(sandbox, 'echo alive')).stdout).toBe('alive\n');
    expect((await python(neighbour, 'kept + 1')).value).toBe('42');
    expect((await shell(neighbour, 'cat /workspace/kept')).stdout).toBe('kept\n');
    const limits = STORED;
    expect(
      await sandboxes.start({ sandboxId: newSandboxId(), imageDigest, limits, environment: {} }),
    ).toMatchObject({ ok: false, code: 'host_full' });
    await rm(join(stateDir, 'filler'));
    const after = await start();
    for (const sandbox of [writer, after]) expect((await shell(sandbox, WRITE)).stdout).toBe('rc=0\n');
    await Promise.all([writer, mapper, neighbour, after].map((sandbox) => sandbox.destroy()));
  });
});
