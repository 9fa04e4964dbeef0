/**
 * Programs that take what CPU, memory, processes and time they can get, each beside a victim: what they meet is a limit,
 * what they get is bounded, and neither the victim nor the host notices. The ids are those of the list of resource
 * attacks, not of the user cases.
 */

import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { openCgroups } from '../../host-agent/cgroup/open.ts';
import { listProcesses } from '../../host-agent/process/process-table.ts';
import type { RunscSandboxesOptions } from '../../host-agent/sandbox/runsc-sandboxes.ts';
import { OWN_PROCESSES } from '../../host-agent/sandbox/spec.ts';
import { STUCK_MS } from '../patience.ts';
import { lives, met, withVictim } from './attack.ts';
import { call, type GetSubject, python, shell, startSandbox } from './subject.ts';

const MIB = 1024 * 1024;

export function describeAttacks(subject: GetSubject, options: () => RunscSandboxesOptions): void {
  describe('resource attacks on CPU, memory, processes and time', () => {
    const { attack, victim } = withVictim(subject);

    it('R1: spinning on every core is throttled and ends at its deadline', async () => {
      await attack({ cpus: 0.5 }, async (attacker) => {
        const spin = 'for i in 1 2 3 4; do while :; do :; done & done; wait';
        const spun = await shell(attacker, spin, { timeoutMs: 3_000 });
        expect(spun.status).toBe('timeout');
        expect(spun.usage.cpuMs).toBeLessThan(3_500);
        expect(await throttled(attacker.id)).toBeGreaterThan(0);
        await lives(attacker);
      });
    });

    it('R2: taking memory until death is oom', async () => {
      await attack({ memory_bytes: 128 * MIB }, async (attacker) => {
        const taken = await python(attacker, 'hog = []\nwhile True: hog.append(bytearray(b"x" * (1 << 22)))');
        expect(taken).toMatchObject({ status: 'oom', stateLost: true });
      });
    });

    it('R3: forking without end meets EAGAIN, and the sandbox lives', async () => {
      // A process costs a few MiB of the sandbox: here their number is to be the first bound.
      await attack({ processes: 64, memory_bytes: 1024 * MIB }, async (attacker) => {
        const fork = [
          'import os, signal, time',
          'children = []',
          'try:',
          '  while len(children) < 500:',
          '    child = os.fork()',
          '    if child == 0:',
          '      time.sleep(60); os._exit(0)',
          '    children.append(child)',
          `except BlockingIOError as error: met = (error.errno == 11, 30 < len(children) < ${64 + OWN_PROCESSES})`,
          'for child in children: os.kill(child, signal.SIGKILL)',
          'for child in children: os.waitpid(child, 0)',
        ].join('\n');
        expect(await met(attacker, fork)).toBe('(True, True)');
        await lives(attacker);
      });
    });

    it('R4: starting threads without end fails, and the sandbox lives', async () => {
      await attack({ processes: 64 }, async (attacker) => {
        const threads = [
          'import threading',
          'stop = threading.Event()',
          'met = None',
          'count = 0',
          'try:',
          '  while count < 2000:',
          '    threading.Thread(target=stop.wait, daemon=True).start()',
          '    count += 1',
          `except RuntimeError: met = 30 < count < ${64 + OWN_PROCESSES}`,
          'stop.set()',
        ].join('\n');
        expect(await met(attacker, threads)).toBe('True');
        await lives(attacker);
      });
    });

    it('R5: orphans and zombies by the hundred are reaped', async () => {
      await attack({}, async (attacker) => {
        const orphans = 'for i in $(seq 150); do (setsid true &) & done; wait; echo done';
        expect((await shell(attacker, orphans, { timeoutMs: 60_000 })).stdout).toBe('done\n');
        await lives(attacker);
        const left = 'cat /proc/[0-9]*/stat 2>/dev/null | grep -c ") Z "';
        expect(Number((await shell(attacker, left)).stdout)).toBeLessThan(5);
      });
    });

    it('R6: a storm of signals and timers hurts only who makes it', async () => {
      await attack({}, async (attacker) => {
        const storm = [
          'import ctypes, os, signal, time',
          'heard = 0',
          'def hear(*_):',
          '  global heard',
          '  heard += 1',
          'signal.signal(signal.SIGUSR1, hear); signal.signal(signal.SIGALRM, hear)',
          'signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)',
          'end = time.monotonic() + 2',
          'while time.monotonic() < end: os.kill(os.getpid(), signal.SIGUSR1)',
          'signal.setitimer(signal.ITIMER_REAL, 0)',
          'libc = ctypes.CDLL(None, use_errno=True)',
          'timer = ctypes.c_void_p()',
          'made = 0',
          'while made < 10000 and libc.timer_create(0, None, ctypes.byref(timer)) == 0: made += 1',
          'met = heard > 100',
        ].join('\n');
        expect(await met(attacker, storm)).toBe('True');
        await lives(attacker);
      });
    });

    it('R24: a program that ignores every signal it can is ended all the same', async () => {
      await attack({}, async (attacker) => {
        const deaf = "trap '' TERM INT HUP QUIT; while :; do sleep 0.1; done";
        const sinceMs = performance.now();
        expect((await shell(attacker, deaf, { timeoutMs: 1_000 })).status).toBe('timeout');
        expect(performance.now() - sinceMs).toBeLessThan(STUCK_MS);
        await lives(attacker);
      });
    });

    it('R25: a daemon lives on after its call, and ends with its session', async () => {
      await attack({}, async (attacker) => {
        const daemon =
          "(setsid bash -c 'while :; do echo beat >> /tmp/beats; sleep 0.05; done' > /dev/null 2>&1 &)";
        await shell(attacker, daemon);
        const listen =
          'count() { cat /tmp/beats 2>/dev/null | wc -l; }; from=$(count); until [ "$(count)" -gt "$from" ]; do sleep 0.1; done; echo beats';
        expect((await shell(attacker, listen, { timeoutMs: STUCK_MS })).stdout).toBe('beats\n');
      });
    });

    it.each([
      ['R26', 'sleeping without end', 'import time; time.sleep(10 ** 6)'],
      [
        'R27',
        'playing with clocks',
        'import time\ntry: time.clock_settime(time.CLOCK_REALTIME, 0)\nexcept OSError: pass\nwhile True: time.sleep(0.01)',
      ],
    ])('%s: %s ends at the deadline of the host', async (_id, _what, code) => {
      await attack({}, async (attacker) => {
        const sinceMs = performance.now();
        expect((await python(attacker, code, { timeoutMs: 1_500 })).status).toBe('timeout');
        const tookMs = performance.now() - sinceMs;
        expect(tookMs).toBeGreaterThanOrEqual(1_450);
        expect(tookMs).toBeLessThan(STUCK_MS);
        expect(Math.abs(Number((await shell(attacker, 'date +%s')).stdout) - Date.now() / 1000)).toBeLessThan(
          5,
        );
      });
    });

    it('R28: sandboxes that die one after the other leave the host as it was', async () => {
      const cgroups = await openCgroups(options().cgroupParent);
      await attack({}, async () => {
        const before = await cgroups.list();
        for (let round = 0; round < 10; round += 1) {
          const doomed = await startSandbox(subject(), { memory_bytes: 96 * MIB });
          const died = call(doomed, 'python', { code: 'hog = bytearray(b"x" * (1 << 28))' });
          expect((await died).status).toBe('oom');
          await doomed.destroy();
        }
        expect(await cgroups.list()).toEqual(before);
      });
      await lives(victim());
    });

    it('whatever it reads and writes, the disk gives it no more than the host says', async () => {
      const path = (await openCgroups(options().cgroupParent)).pathOf(victim().id);
      const bound = `^\\d+:\\d+ .*${options().io?.readBytesPerS}\\b`;
      const files = ['blkio.throttle.read_bps_device', 'blkio.throttle.write_bps_device', 'io.max'];
      const found = ['/sys/fs/cgroup/blkio', '/sys/fs/cgroup'].flatMap((mount) =>
        files.map((file) => readIfThere(`${mount}${path}/${file}`)).filter(Boolean),
      );
      expect(found.length).toBeGreaterThan(0);
      for (const text of found) expect(text).toMatch(new RegExp(bound));
      const members = ['/sys/fs/cgroup/blkio', '/sys/fs/cgroup'].map((mount) =>
        readIfThere(`${mount}${path}/cgroup.procs`),
      );
      const sentry = (await listProcesses()).find(
        ({ argv }) => argv[0] === 'runsc-sandbox' && argv.includes(victim().id),
      );
      expect(members.join('\n').split('\n')).toContain(String(sentry?.pid));
    });

    const throttled = async (sandboxId: string): Promise<number> => {
      const path = (await openCgroups(options().cgroupParent)).pathOf(sandboxId);
      for (const mount of ['/sys/fs/cgroup/cpu', '/sys/fs/cgroup']) {
        const count = /^nr_throttled (\d+)$/m.exec(readIfThere(`${mount}${path}/cpu.stat`))?.[1];
        if (count !== undefined) return Number(count);
      }
      throw new Error('the kernel does not say how often the group was throttled');
    };
  });
}

function readIfThere(path: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch {
    return '';
  }
}
