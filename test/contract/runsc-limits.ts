/** Limits, measured by load and from inside: a limit that is only configured may not be there. */

import { describe, expect, it } from 'vitest';
import type { Sandbox } from '../../host-agent/sandbox/port.ts';
import { OWN_PROCESSES } from '../../host-agent/sandbox/spec.ts';
import type { ResourceLimits } from '../../shared/session.ts';
import { STUCK_MS } from '../patience.ts';
import { type GetSubject, python, shell, startSandbox } from './subject.ts';

const MIB = 1024 * 1024;

export function describeLimits(subject: GetSubject): void {
  const within = async (limits: Partial<ResourceLimits>, work: (sandbox: Sandbox) => Promise<void>) => {
    const sandbox = await startSandbox(subject(), limits);
    try {
      await work(sandbox);
    } finally {
      await sandbox.destroy();
    }
  };

  describe('limits', () => {
    it('R27: a full /tmp or workspace says so, and the sandbox lives on, though memory is smaller', async () => {
      await within(
        { memory_bytes: 128 * MIB, workspace_bytes: 256 * MIB, tmp_bytes: 192 * MIB },
        async (sandbox) => {
          for (const folder of ['/tmp', '/workspace']) {
            const command = `head -c 2G /dev/zero > ${folder}/big; echo rc=$?; stat -c %s ${folder}/big; rm -f ${folder}/big; echo ok > ${folder}/s; cat ${folder}/s`;
            const filled = await shell(sandbox, command, { timeoutMs: 60_000 });
            const sizeBytes = folder === '/tmp' ? 192 * MIB : 256 * MIB;
            expect(filled).toMatchObject({ status: 'succeeded', stdout: `rc=1\n${sizeBytes}\nok\n` });
            expect(filled.stderr).toContain('No space left on device');
          }
        },
      );
    });

    it('R66: a fork bomb meets errors inside, its neighbour does not notice, and it is gone on delete', async () => {
      await within({ processes: 64 }, async (bomb) => {
        const neighbour = await startSandbox(subject());
        try {
          const running = shell(bomb, 'f(){ f & f & wait; }; f', { timeoutMs: 5_000 });
          let bombed = false;
          void running.then(() => {
            bombed = true;
          });
          const slowestMs: number[] = [];
          while (!bombed) {
            const startedAtMs = performance.now();
            expect((await shell(neighbour, 'echo hi')).stdout).toBe('hi\n');
            slowestMs.push(performance.now() - startedAtMs);
          }
          expect(slowestMs.length).toBeGreaterThan(0);
          expect(Math.max(...slowestMs)).toBeLessThan(STUCK_MS);
          expect((await running).status).toMatch(/^(timeout|failed)$/);
          const destroyingSinceMs = performance.now();
          await bomb.destroy();
          expect(performance.now() - destroyingSinceMs).toBeLessThan(STUCK_MS);
          expect(await subject().tracesOf(bomb.id)).toEqual([]);
        } finally {
          await neighbour.destroy();
        }
      });
    });

    it('processes are bounded with EAGAIN and can be had again afterwards', async () => {
      await within({ processes: 32 }, async (sandbox) => {
        const code = [
          'import subprocess, errno',
          'children = []',
          'problem = None',
          'try:',
          '  while len(children) < 100: children.append(subprocess.Popen(["sleep", "60"]))',
          'except OSError as error: problem = errno.errorcode[error.errno]',
          'for child in children: child.kill()',
          'for child in children: child.wait()',
          `problem, 32 <= len(children) <= ${32 + OWN_PROCESSES}`,
        ].join('\n');
        expect((await python(sandbox, code)).value).toBe("('EAGAIN', True)");
        expect((await shell(sandbox, 'echo $(echo alive)')).stdout).toBe('alive\n');
      });
    });

    it('CPU time is throttled to the quota', async () => {
      await within({ cpus: 0.5 }, async (sandbox) => {
        await python(sandbox, 'import time');
        const spin = 'end = time.monotonic() + 2\nwhile time.monotonic() < end: pass';
        const { usage } = await python(sandbox, spin);
        expect(usage.cpuMs).toBeGreaterThan(50);
        expect(usage.cpuMs).toBeLessThan(1_500);
      });
    });

    it('a child that was killed for memory makes the call oom, whatever its exit code', async () => {
      await within({ memory_bytes: 128 * MIB }, async (sandbox) => {
        const hog =
          "python3 -c 'hog = bytearray(2 * 1024 ** 3)\nfor at in range(0, len(hog), 4096): hog[at] = 1'";
        expect((await shell(sandbox, hog)).status).toBe('oom');
      });
    });

    it.each([
      ['open files', 'files = [open("/dev/null") for _ in range(2000)]', 'EMFILE'],
      ['sparse files', 'open("/workspace/sparse", "w").truncate(2 ** 40)', 'EFBIG'],
    ])('%s are bounded', async (_, code, errno) => {
      await within({}, async (sandbox) => {
        const attempt = `import errno, signal\nsignal.signal(signal.SIGXFSZ, signal.SIG_IGN)\ntry: ${code}\nexcept OSError as error: met = errno.errorcode[error.errno]\nmet`;
        expect((await python(sandbox, attempt)).value).toBe(`'${errno}'`);
      });
    });
  });
}
