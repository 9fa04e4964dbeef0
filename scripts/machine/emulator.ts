/** A machine under QEMU, and commands on it. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as wait } from 'node:timers/promises';
import { SetupFailure } from '../../host-agent/setup/failure.ts';
import { requireFreePort } from '../development/port.ts';
import { CACHE_ARCHIVE, CHECKOUT, type Disk } from './disk.ts';

const CACHE = '/var/cache/sandgate';
const MEMORY_MIB = 4096;
const BOOT_TIMEOUT_MS = 1_800_000;
const LOOK_MS = 2_000;
/** Of one command: what takes longer hangs. */
const COMMAND_TIMEOUT_S = 10_800;
/** Also waits until systemd has started everything. */
const UNPACK = `systemctl is-system-running --wait; mkdir -p ${CACHE}; tar -x -C ${CACHE} -f ${CACHE_ARCHIVE}`;
const SSH_OPTIONS = [
  'BatchMode=yes',
  'ConnectTimeout=120',
  'LogLevel=ERROR',
  // It came into being a moment ago, on loopback.
  'StrictHostKeyChecking=no',
  'UserKnownHostsFile=/dev/null',
];

/** KVM is asked for and not looked for: on a machine that is itself virtual its device may be there and not work. */
export function isEmulated(): boolean {
  return process.env.SANDGATE_TEST_MACHINE !== 'kvm';
}

/**
 * Without KVM its clock counts its own instructions, one a nanosecond: however slowly it is emulated, and however
 * busy this machine is, what has a deadline there takes no longer than on a real machine of that speed. With a second CPU
 * sandboxes would take ten times as much: what waits on one CPU for the other is emulated too.
 */
function processorOf(): string {
  if (!isEmulated()) return '-accel kvm -cpu host -smp 2';
  return '-accel tcg,thread=single,tb-size=1024 -icount shift=0 -rtc clock=vm -cpu max -smp 1';
}

export class Emulator {
  readonly #machine: ChildProcess;
  readonly #ssh: readonly string[];

  private constructor(machine: ChildProcess, ssh: readonly string[]) {
    this.#machine = machine;
    this.#ssh = ssh;
  }

  /** Answers once commands can be run on it. */
  static async start(workDir: string, disk: Disk): Promise<Emulator> {
    const port = await requireFreePort(0);
    const consolePath = join(workDir, 'console');
    const argv = [
      `-machine q35 ${processorOf()} -m ${MEMORY_MIB} -nodefaults -no-reboot -display none`,
      `-netdev user,id=net,hostfwd=tcp:127.0.0.1:${port}-:22 -device virtio-net-pci,netdev=net`,
      '-device virtio-rng-pci',
    ].flatMap((options) => options.split(' '));
    argv.push('-serial', `file:${consolePath}`, '-kernel', disk.kernel, '-initrd', disk.initialRamDisk);
    argv.push('-append', 'root=/dev/vda rw console=ttyS0 quiet systemd.show_status=no mitigations=off');
    argv.push('-drive', `file=${disk.path},if=virtio,format=raw,cache=unsafe`);
    const machine = spawn('setpriv', ['--pdeathsig', 'KILL', '--', 'qemu-system-x86_64', ...argv], {
      stdio: ['ignore', 'inherit', 'inherit'],
    });
    const options = SSH_OPTIONS.flatMap((option) => ['-o', option]);
    const ssh = ['-i', disk.keyPath, '-p', String(port), ...options, 'root@127.0.0.1', '--'];
    const emulator = new Emulator(machine, ssh);
    const endMs = performance.now() + BOOT_TIMEOUT_MS;
    while ((await emulator.#run(UNPACK, 'ignore')) !== 0) {
      if (!emulator.#hasEnded && performance.now() < endMs) {
        await wait(LOOK_MS);
        continue;
      }
      await emulator.stop();
      const said = await readFile(consolePath, 'utf8').catch(() => '');
      throw new SetupFailure(`the machine did not start: ${said.trim().split('\n').at(-1) ?? ''}`);
    }
    return emulator;
  }

  /**
   * In the copy of this checkout, with what it says told here as it comes; the exit code. Temporary folders are on the disk: a
   * host keeps its state on one, and systemd makes `/tmp` of memory.
   */
  runInCheckout(argv: readonly string[]): Promise<number> {
    const words = argv.map((word) => `'${word.replaceAll("'", "'\\''")}'`).join(' ');
    const environment = `TMPDIR=/var/tmp PATH=${CHECKOUT}/node_modules/.bin:$PATH`;
    return this.#run(`cd ${CHECKOUT} && ${environment} exec ${words}`, 'inherit');
  }

  async #run(command: string, output: 'inherit' | 'ignore'): Promise<number> {
    const bounded = ['timeout', String(COMMAND_TIMEOUT_S), 'ssh', ...this.#ssh, command];
    const child = spawn('setpriv', ['--pdeathsig', 'TERM', '--', ...bounded], {
      stdio: ['ignore', output, output],
    });
    const [code] = await once(child, 'exit');
    return typeof code === 'number' ? code : 255;
  }

  get #hasEnded(): boolean {
    return this.#machine.exitCode !== null || this.#machine.signalCode !== null;
  }

  async stop(): Promise<void> {
    if (this.#hasEnded) return;
    const ended = once(this.#machine, 'exit');
    this.#machine.kill('SIGKILL');
    await ended;
  }
}
