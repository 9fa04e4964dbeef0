/** The checks of isolation find a sandbox that is not isolated: each fault is one that a slip in our settings would make. */
import { chmod, copyFile, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { GuestLink } from '../../host-agent/guest-link/guest-link.ts';
import type { CapabilitySet, OciSpec } from '../../host-agent/sandbox/oci.ts';
import { BASE_ENVIRONMENT, FIRST_SANDBOX_USER } from '../../host-agent/sandbox/spec.ts';
import { type Installation, setUp } from '../../host-agent/setup/setup.ts';
import { silentProgress } from '../../host-agent/setup/step.ts';
import { locations } from '../../scripts/locations.ts';
import { type RawSandboxFaults, startRawSandbox } from '../fixtures/raw-sandbox.ts';
import { ISOLATION_CHECKS } from './isolation-checks.ts';

const SPAWN_TIMEOUT_MS = 20_000;
const CAPABILITY_SETS: CapabilitySet[] = ['bounding', 'effective', 'inheritable', 'permitted', 'ambient'];

let installation: Installation;
let folder: string;

beforeAll(async () => {
  installation = await setUp(locations(process.env), process.env, silentProgress);
  folder = await mkdtemp(join(tmpdir(), 'sandgate-of-the-host-'));
  await writeFile(join(folder, 'secret'), 'x');
}, 600_000);
afterAll(() => rm(folder, { recursive: true, force: true }));

async function printedBy(link: GuestLink, spec: OciSpec, command: string): Promise<string> {
  const printed: Uint8Array[] = [];
  const channel = await link.spawn({
    argv: ['bash', '-c', command],
    cwd: '/',
    // What the supervisor itself was started with: programs of a session have that and their own.
    environment: spec.process.env,
    onOutput: (stream, bytes) => void (stream === 'stdout' && printed.push(bytes)),
    timeoutMs: SPAWN_TIMEOUT_MS,
  });
  if (!channel.ok) throw new Error(channel.failure.message);
  channel.value.closeStdin();
  await channel.value.exited;
  await channel.value.release(SPAWN_TIMEOUT_MS);
  return Buffer.concat(printed).toString('utf8');
}

/** Titles of the checks that do not hold. */
async function broken(faults: RawSandboxFaults): Promise<string[]> {
  const sandbox = await startRawSandbox(installation, faults);
  try {
    const found: string[] = [];
    for (const { title, command, holds } of ISOLATION_CHECKS) {
      if (!holds(await printedBy(sandbox.link, sandbox.spec, command))) found.push(title);
    }
    return found;
  } finally {
    await sandbox.stop();
  }
}

describe('the checks of isolation', () => {
  it('find nothing wrong with the settings as they are', async () => {
    expect(await broken({})).toEqual([]);
  });

  it.each<[string, RawSandboxFaults, string[]]>([
    [
      'a user of the host',
      { spec: (spec) => void Object.assign(spec.process.user, { uid: 0, gid: 0 }) },
      ['programs are of a user and group that the host has not'],
    ],
    [
      'capabilities',
      {
        spec: (spec) => {
          for (const set of CAPABILITY_SETS) spec.process.capabilities[set] = ['CAP_NET_RAW', 'CAP_CHOWN'];
        },
      },
      ['no program has a capability'],
    ],
    [
      'a root file system that can be written',
      {
        spec: (spec) => {
          spec.root.readonly = false;
        },
      },
      ['the root file system is read-only'],
    ],
    [
      'a folder of the host',
      {
        spec: (spec) => {
          spec.mounts.push({ destination: '/mnt', type: 'bind', source: folder, options: ['bind', 'ro'] });
        },
      },
      ['nothing is mounted that is not its own'],
    ],
    [
      'the network of the host',
      {
        spec: (spec) => {
          spec.linux.namespaces = spec.linux.namespaces.filter(({ type }) => type !== 'network');
        },
        flags: (argv) => argv.map((flag) => (flag === '--network=none' ? '--network=host' : flag)),
      },
      ['there is no interface but loopback'],
    ],
    [
      'no limits of a process',
      {
        spec: (spec) => {
          spec.process.rlimits = [];
        },
      },
      ['every limit of a process is set'],
    ],
    [
      'files without a limit',
      {
        spec: (spec) => {
          spec.process.rlimits = spec.process.rlimits.filter(({ type }) => type !== 'RLIMIT_FSIZE');
        },
      },
      ['every limit of a process is set'],
    ],
    [
      'memory without a limit',
      { limits: { memory_bytes: 1024 ** 4 } },
      ['memory is bounded far below that of the machine'],
    ],
    [
      'shared memory that programs are run from',
      {
        spec: (spec) => {
          for (const mount of spec.mounts)
            mount.options = mount.options.filter((option) => option !== 'noexec');
        },
      },
      ['nothing is run from shared memory or /proc'],
    ],
    [
      'a workspace of the host, without a size',
      {
        spec: (spec) => {
          const isOfRoot = ([key]: [string, string]): boolean => key.includes('.rootfs.');
          spec.annotations = Object.fromEntries(Object.entries(spec.annotations).filter(isOfRoot));
        },
      },
      ['what can be written is bounded, and no folder of the host'],
    ],
    [
      'system calls that nobody filters',
      { spec: (spec) => void delete spec.linux.seccomp },
      [
        'the system calls of an administrator are refused before the kernel looks at them',
        'nobody becomes root in a namespace of their own',
        'no device can be made, no disk opened, and no file system mounted',
      ],
    ],
    [
      'a runsc that does not heed the filter',
      { flags: (argv) => argv.filter((flag) => flag !== '--oci-seccomp') },
      [
        'the system calls of an administrator are refused before the kernel looks at them',
        'nobody becomes root in a namespace of their own',
        'no device can be made, no disk opened, and no file system mounted',
      ],
    ],
    [
      'the environment of the host',
      { spec: (spec) => void spec.process.env.push('AWS_SECRET_ACCESS_KEY=x') },
      ['no variable of the host is to be seen'],
    ],
  ])('find %s', async (_fault, faults, expected) => {
    expect(await broken(faults)).toEqual(expected);
  });

  it('hang on nothing that this gVisor ignores: of nosuid and nodev it heeds neither', async () => {
    const dropped = ['nosuid', 'nodev'];
    const without = (spec: OciSpec): void => {
      for (const mount of spec.mounts)
        mount.options = mount.options.filter((option) => !dropped.includes(option));
      for (const [key, value] of Object.entries(spec.annotations))
        spec.annotations[key] = value
          .split(',')
          .filter((option) => !dropped.includes(option))
          .join();
    };
    expect(await broken({ spec: without })).toEqual([]);
  });

  // gVisor says `1` for PR_GET_NO_NEW_PRIVS whatever it was started with: what counts is what such a program gets.
  it('have no need to ask for set-user-id programs: they gain nothing, even where our settings would let them', async () => {
    const program = join(folder, 'id');
    await copyFile(join(installation.image.rootfsPath, 'usr/bin/id'), program);
    await chmod(program, 0o4755);
    await chmod(folder, 0o755);
    const sandbox = await startRawSandbox(installation, {
      spec: (spec) => {
        spec.process.noNewPrivileges = false;
        spec.mounts.push({ destination: '/mnt', type: 'bind', source: folder, options: ['bind', 'ro'] });
      },
    });
    try {
      const found = await printedBy(
        sandbox.link,
        sandbox.spec,
        'stat -c %A:%u /mnt/id; /mnt/id -u; /mnt/id -ru',
      );
      expect(found).toBe(`-rwsr-xr-x:0\n${FIRST_SANDBOX_USER}\n${FIRST_SANDBOX_USER}\n`);
    } finally {
      await sandbox.stop();
    }
  });

  it('know the variables that every program has', () => {
    const names = Object.keys(BASE_ENVIRONMENT).join('\n');
    const check = ISOLATION_CHECKS.find(({ title }) => title.startsWith('no variable'));
    expect(check?.holds(names)).toBe(true);
  });
});
