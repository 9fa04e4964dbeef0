/** What a program finds when it looks around, and what happens when the sandbox itself dies. */
import { readdirSync, readFileSync, readlinkSync } from 'node:fs';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { killProcess, listProcesses } from '../../host-agent/process/process-table.ts';
import type { Sandbox } from '../../host-agent/sandbox/port.ts';
import { ISOLATION_CHECKS } from './isolation-checks.ts';
import { file, type GetSubject, python, shell, startSandbox } from './subject.ts';

export function describeIsolation(subject: GetSubject): void {
  describe('isolation', () => {
    let sandbox: Sandbox;
    beforeAll(async () => {
      sandbox = await startSandbox(subject());
    });
    afterAll(() => sandbox.destroy());

    const output = async (command: string): Promise<string> => (await shell(sandbox, command)).stdout.trim();

    it.each(ISOLATION_CHECKS)('$title', async ({ command, holds }) => {
      const printed = await output(command);
      expect(holds(printed), printed).toBe(true);
    });

    it('runs as a user of its own, without capabilities and unable to gain any', async () => {
      expect(Number(await output('id -u'))).toBeGreaterThanOrEqual(100_000);
      const capabilities = await output("grep '^Cap' /proc/self/status | tr -d '\\t'");
      expect(capabilities).toMatch(/^(Cap(Inh|Prm|Eff|Bnd):0{16}\n?){4}$/);
      const gained = await shell(sandbox, 'mount -t tmpfs x /mnt || chroot / true || su -c true < /dev/null');
      expect(gained.exitCode).not.toBe(0);
    });

    it('has no process on the host with powers over it: each is in a user namespace of its own', async () => {
      const ownNamespace = readlinkSync('/proc/self/ns/user');
      const processes = (await listProcesses()).filter(
        ({ argv }) => argv[0]?.startsWith('runsc-') && argv.includes(sandbox.id),
      );
      expect(processes.map(({ argv }) => argv[0])).toContain('runsc-sandbox');
      for (const { pid, argv } of processes) {
        expect(readlinkSync(`/proc/${pid}/ns/user`), argv[0]).not.toBe(ownNamespace);
        const ids = readFileSync(`/proc/${pid}/uid_map`, 'utf8').trim().split('\n');
        expect(
          ids.every((line) => line.endsWith(' 1')),
          argv[0],
        ).toBe(true);
      }
    });

    it('may open few files of the host, however many its programs open', async () => {
      const open = 'import os; files = [os.open("/etc/passwd", os.O_RDONLY) for _ in range(900)]; len(files)';
      expect((await python(sandbox, open)).value).toBe('900');
      const sentry = (await listProcesses()).find(
        ({ argv }) => argv[0] === 'runsc-sandbox' && argv.includes(sandbox.id),
      );
      const limits = readFileSync(`/proc/${sentry?.pid}/limits`, 'utf8');
      expect(limits).toMatch(/^Max open files +1024 +1024 /m);
      const held = readdirSync(`/proc/${sentry?.pid}/fd`).length;
      expect(held).toBeLessThan(100);
    });

    it('can trace its own programs, as debuggers do', async () => {
      const traced = await python(
        sandbox,
        'import ctypes, os\nlibc = ctypes.CDLL(None)\nchild = os.fork()\nif child == 0: os._exit(libc.ptrace(0, 0, 0, 0) != 0)\nos.waitpid(child, 0)[1]',
      );
      expect(traced.value).toBe('0');
    });

    it('writes nowhere but in its workspace, /tmp and shared memory', async () => {
      const tried =
        'for f in /x /etc/x /usr/bin/x /sandgate/x /root/x /proc/x /sys/x; do touch $f 2>/dev/null && echo $f; done; true';
      expect(await output(tried)).toBe('');
      expect(await output('for f in /workspace /tmp /dev/shm; do touch $f/x && echo $f; done')).toBe(
        '/workspace\n/tmp\n/dev/shm',
      );
    });

    it('has no network but its own loopback', async () => {
      const code = [
        'import socket',
        'met = []',
        'for target in (("1.1.1.1", 53), ("169.254.169.254", 80), ("10.0.0.1", 80)):',
        '  try: socket.create_connection(target, 1)',
        '  except OSError as error: met.append(type(error).__name__)',
        'len(met)',
      ].join('\n');
      expect((await python(sandbox, code)).value).toBe('3');
    });

    it('opens no block device, even one it makes', async () => {
      const made = await shell(sandbox, 'mknod /tmp/disk b 8 0; head -c 1 /tmp/disk');
      expect(made).toMatchObject({ status: 'failed', stdout: '' });
    });

    it('R51: follows links inside the sandbox only', async () => {
      await shell(sandbox, 'ln -s /etc out; ln -s /etc/planted dangling; mkdir d; ln -s / d/root');
      const passwd = await file(sandbox, { operation: 'read', path: 'out/passwd' });
      expect(passwd.value).toBe((await shell(sandbox, 'cat /etc/passwd')).stdout);
      for (const path of ['dangling', 'd/root/etc/p2', '../../../etc/p3', '/proc/self/root/etc/p4']) {
        const written = await file(sandbox, { operation: 'write', path, content: 'x' });
        expect(written.status).toBe('failed');
      }
    });

    it('R15: sees neither variables nor arguments of the host', async () => {
      const seen = await output("tr '\\0' '\\n' < /proc/self/environ; cat /proc/1/cmdline | tr '\\0' ' '");
      expect(seen).not.toMatch(/SANDGATE|VITEST|node_modules/);
    });

    it('has a file server again after a program killed it', async () => {
      await file(sandbox, { operation: 'stat', path: '/' });
      const isServer = "grep -q '^/sandgate/files' $p/cmdline";
      const killing = `for p in /proc/[0-9]*; do ${isServer} && kill -9 $(basename $p) && echo killed; done`;
      expect((await shell(sandbox, killing)).stdout).toBe('killed\n');
      await file(sandbox, { operation: 'stat', path: '/' });
      expect((await file(sandbox, { operation: 'stat', path: '/' })).status).toBe('succeeded');
    });

    it('says crashed when the sentry dies, and leaves nothing', async () => {
      const doomed = await startSandbox(subject());
      const killSentry = async (): Promise<void> => {
        const sentries = (await listProcesses()).filter(
          ({ argv }) => argv[0] === 'runsc-sandbox' && argv.includes(doomed.id),
        );
        for (const { pid } of sentries) killProcess(pid);
      };
      const crashed = await shell(doomed, 'echo begin; sleep 60', { onOutput: () => void killSentry() });
      expect(crashed).toMatchObject({ status: 'crashed', stdout: 'begin\n', stateLost: true });
      expect(await doomed.lost).toEqual({ reason: 'crashed' });
      await doomed.destroy();
      expect(await subject().tracesOf(doomed.id)).toEqual([]);
    });
  });
}
