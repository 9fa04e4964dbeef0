import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { OUTPUT_WINDOW_BYTES } from '../../host-agent/guest-link/output-window.ts';
import type { Sandbox } from '../../host-agent/sandbox/port.ts';
import { COUNT_SLEEPS } from '../fixtures/fake-shell.ts';
import { STUCK_MS } from '../patience.ts';
import { type GetSubject, python, shell, startSandbox } from './subject.ts';

const STUBBORN = 'import time\nwhile True:\n  try: time.sleep(1)\n  except BaseException: pass';

async function timed<Value>(work: () => Promise<Value>): Promise<{ value: Value; tookMs: number }> {
  const startedAtMs = performance.now();
  const value = await work();
  return { value, tookMs: performance.now() - startedAtMs };
}

export function describeStopping(subject: GetSubject): void {
  describe('stopping', () => {
    let sandbox: Sandbox;
    beforeAll(async () => {
      sandbox = await startSandbox(subject());
    });
    afterAll(() => sandbox.destroy());

    it('ends a shell call at its deadline with all its descendants and keeps its output', async () => {
      const command = 'echo begin; setsid sleep 300 & sleep 301';
      const { value, tookMs } = await timed(() => shell(sandbox, command, { timeoutMs: 1_000 }));
      expect(value).toMatchObject({ status: 'timeout', stdout: 'begin\n', stateLost: false });
      expect(tookMs).toBeGreaterThanOrEqual(1_000);
      expect(tookMs).toBeLessThan(STUCK_MS);
      expect((await shell(sandbox, COUNT_SLEEPS)).stdout).toBe('0\n');
    });

    it('leaves what a call that ended by itself has in the background', async () => {
      expect((await shell(sandbox, 'sleep 300 & sleep 0')).status).toBe('succeeded');
      expect((await shell(sandbox, COUNT_SLEEPS)).stdout).toBe('1\n');
    });

    it('ends a python call at its deadline and keeps output and variables', async () => {
      await python(sandbox, 'kept = 5');
      const code = "import time\nprint('begin')\ntime.sleep(60)";
      const stopped = await python(sandbox, code, { timeoutMs: 1_000 });
      expect(stopped).toMatchObject({ status: 'timeout', stdout: 'begin\n', stateLost: false });
      expect((await python(sandbox, 'kept')).value).toBe('5');
    });

    it('kills a kernel that does not stop at its deadline, and says what is lost', async () => {
      await python(sandbox, 'gone = 5');
      const { value, tookMs } = await timed(() => python(sandbox, STUBBORN, { timeoutMs: 1_000 }));
      expect(value).toMatchObject({ status: 'timeout', stateLost: true });
      expect(tookMs).toBeLessThan(STUCK_MS);
      expect(await python(sandbox, "'gone' in globals()")).toMatchObject({
        value: 'False',
        stateLost: false,
      });
    });

    it('interrupts python and keeps its variables', async () => {
      await python(sandbox, 'kept = 6');
      const code = "import time\nprint('begin')\ntime.sleep(60)";
      const stopped = await python(sandbox, code, { interruptAt: 'begin' });
      expect(stopped).toMatchObject({ status: 'interrupted', stateLost: false });
      expect(stopped.error?.name).toBe('KeyboardInterrupt');
      expect((await python(sandbox, 'kept')).value).toBe('6');
    });

    it('interrupts a shell call', async () => {
      const stopped = await shell(sandbox, 'echo begin; sleep 60', { interruptAt: 'begin' });
      expect(stopped).toMatchObject({ status: 'interrupted', stdout: 'begin\n', stateLost: false });
      expect((await shell(sandbox, 'echo alive')).stdout).toBe('alive\n');
    });

    it('kills a shell call that ignores its interrupt', async () => {
      const command = "trap '' INT TERM; echo begin; sleep 60";
      const { value, tookMs } = await timed(() => shell(sandbox, command, { interruptAt: 'begin' }));
      expect(value).toMatchObject({ status: 'interrupted', signal: 'SIGKILL' });
      expect(tookMs).toBeLessThan(STUCK_MS);
    });

    it('R77: blocks an endless printer while nobody takes its output', async () => {
      for (const [tool, toolArguments] of [
        ['shell', { command: 'yes abcdefgh' }],
        ['python', { code: "while True: print('abcdefgh')" }],
      ] as const) {
        let delivered = 0;
        const blocked = sandbox.execute(
          { executionId: 'exe_blocked', tool, arguments: toolArguments, timeoutMs: 1_500 },
          (_, bytes) => {
            delivered += bytes.length;
            return new Promise(() => undefined);
          },
        );
        expect((await blocked.finished).status).toBe('timeout');
        expect(delivered).toBeGreaterThan(0);
        expect(delivered).toBeLessThanOrEqual(OUTPUT_WINDOW_BYTES);
      }
    });

    it('takes the output of an endless printer as fast as it is taken', async () => {
      let delivered = 0;
      const taken = sandbox.execute(
        { executionId: 'exe_taken', tool: 'shell', arguments: { command: 'yes abcdefgh' }, timeoutMs: 1_500 },
        async (_, bytes) => {
          delivered += bytes.length;
        },
      );
      expect((await taken.finished).status).toBe('timeout');
      expect(delivered).toBeGreaterThan(2 * 1024 * 1024);
    });
  });
}
