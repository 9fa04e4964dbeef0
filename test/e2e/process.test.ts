/** Processes end, and what ends them is told. */

import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { isTerminal } from '../../shared/lifecycle.ts';
import { PATIENCE_MS, STUCK_MS } from '../patience.ts';
import { Refused } from './client.ts';
import { TERMINAL_WITHIN_MS } from './crash-checks.ts';
import { bytesBelow, cgroupFileOf, processesOfSandbox } from './leftovers.ts';
import { useSession, useStack } from './stack.ts';
import { pause, timed, until } from './until.ts';

const stack = useStack();

/** The largest of what is measured again and again until it is stopped. */
function watchMost(measure: () => Promise<number>): { stop(): Promise<number> } {
  let most = 0;
  let isStopped = false;
  const watching = (async () => {
    while (!isStopped) {
      most = Math.max(most, await measure());
      await pause(20);
    }
  })();
  return {
    async stop() {
      isStopped = true;
      await watching;
      return most;
    },
  };
}

describe('R38 a shell that ends or changes itself', () => {
  const session = useSession(stack);

  test('R38 by exit, set -e and exec leaves the session as it was', async () => {
    const calls: [string, { exit_code: number; stdout: string }][] = [
      ['cd /tmp; exit 7', { exit_code: 7, stdout: '' }],
      ['echo alive', { exit_code: 0, stdout: 'alive\n' }],
      ['set -e; false; echo no', { exit_code: 1, stdout: '' }],
      ['false; echo after', { exit_code: 0, stdout: 'after\n' }],
      ['exec true', { exit_code: 0, stdout: '' }],
      ['echo ok', { exit_code: 0, stdout: 'ok\n' }],
    ];
    const { sandbox_id: sandboxId } = await session().describe();
    for (const [command, expected] of calls) {
      const { value: result, elapsedMs } = await timed(session().sh(command));
      expect({ command, ...result }).toMatchObject({ command, ...expected });
      expect(elapsedMs).toBeLessThan(STUCK_MS);
      expect(result.state_lost).toBe(false);
    }
    expect((await session().describe()).sandbox_id).toBe(sandboxId);
  });

  test.each([
    ['an unset variable under set -u', 'set -u; echo $NOT_SET; echo no', 127],
    ['a trap on exit', "trap 'exit 3' EXIT", 3],
    ['an exit code above 255', 'exit 300', 44],
    ['a closed stdout', 'exec 1>&-; exit 5', 5],
    ['another program in its place', "exec bash -c 'exit 9'", 9],
    ['a syntax error', 'if then', 2],
    ['an open quote', "echo 'open", 2],
    ['a command that is not there', 'not-a-command', 127],
    ['a file that is not a program', '/etc/passwd', 126],
    ['a folder removed under it', 'mkdir -p /tmp/gone; cd /tmp/gone; rmdir /tmp/gone; exit 6', 6],
    ['functions over its own names', 'exit() { echo x; }; cd() { :; }; export -f exit cd; builtin exit 8', 8],
    ['no path', 'export PATH=/nowhere; exit 4', 4],
  ])('R38 by %s gives its exit code, and the next call is answered', async (_name, command, exitCode) => {
    const own = await stack().open();
    const first = await timed(own.sh(command));
    expect(first.value.exit_code).toBe(exitCode);
    const next = await timed(own.sh('echo alive'));
    expect(next.value).toMatchObject({ status: 'succeeded', stdout: 'alive\n' });
    expect(Math.max(first.elapsedMs, next.elapsedMs)).toBeLessThan(STUCK_MS);
    await own.delete();
  });

  test('R38 keeps the folder and exported variables of a call that ended by exit', async () => {
    await session().sh('mkdir -p /tmp/kept; cd /tmp/kept; export KEPT=yes; exit 1');
    expect((await session().sh('echo $KEPT $PWD')).stdout).toBe('yes /tmp/kept\n');
  });
});

describe('R68 death by a signal', () => {
  const session = useSession(stack);

  test.each([
    ['SIGKILL', 137],
    ['SIGSEGV', 139],
    ['SIGTERM', 143],
    ['SIGABRT', 134],
    ['SIGHUP', 129],
    ['SIGINT', 130],
    ['SIGUSR2', 140],
    ['SIGTRAP', 133],
    ['SIGXCPU', 152],
    ['SIGILL', 132],
    ['SIGBUS', 135],
    ['SIGFPE', 136],
    ['SIGUSR1', 138],
    ['SIGPIPE', 141],
    ['SIGALRM', 142],
  ])('R68 %s is told by name and as exit code %i', async (signal, exitCode) => {
    const { value: result, elapsedMs } = await timed(session().sh(`kill -${signal} $$; sleep 5`));
    expect(result).toMatchObject({ status: 'failed', exit_code: exitCode, signal });
    expect(elapsedMs).toBeLessThan(STUCK_MS);
    expect(await session().sh('echo usable')).toMatchObject({ exit_code: 0, stdout: 'usable\n' });
  });

  test('R68 SIGPIPE reaches the first program of a pipe', async () => {
    const result = await session().sh(`yes | head -n 1; echo \${PIPESTATUS[0]}`);
    expect(result).toMatchObject({ status: 'succeeded', exit_code: 0, signal: null, stdout: 'y\n141\n' });
    expect(
      (
        await session().py(
          `import subprocess; subprocess.run("yes | head -n 1; exit \${PIPESTATUS[0]}", shell=True, executable="/bin/bash").returncode`,
        )
      ).value,
    ).toBe('141');
  });

  test('R68 of a child is an exit code like another', async () => {
    const result = await session().sh("sh -c 'kill -9 $$'; echo $?");
    expect(result).toMatchObject({ status: 'succeeded', exit_code: 0, signal: null, stdout: '137\n' });
  });

  test.each([
    ['SIGKILL', 'import os; os.kill(os.getpid(), 9)', 137],
    ['SIGSEGV', 'import os, signal; os.kill(os.getpid(), signal.SIGSEGV)', 139],
  ])(
    'R68 %s of the Python kernel is told, and the next cell has a new kernel',
    async (signal, code, exitCode) => {
      await session().py('kept = 1');
      const { value: result, elapsedMs } = await timed(session().py(code));
      expect(result).toMatchObject({ status: 'failed', signal, exit_code: exitCode, state_lost: true });
      expect(elapsedMs).toBeLessThan(STUCK_MS);
      expect((await session().py("'kept' in globals()")).value).toBe('False');
    },
  );

  test('R68 leaves no ignored or blocked signal to the programs of a session', async () => {
    const read = "grep -E '^Sig(Blk|Ign)' /proc/self/status | cut -f2 | sort -u";
    const python = `import subprocess; subprocess.run(${JSON.stringify(read)}, shell=True, capture_output=True, text=True).stdout`;
    const none = '0000000000000000';
    const shell = (await session().sh(read)).stdout;
    if (shell !== '') expect(shell).toBe(`${none}\n`);
    const fromPython = (await session().py(python)).value;
    if (fromPython !== "''") expect(fromPython).toBe(`'${none}\\n'`);
    const ignored =
      'import signal; [s.name for s in signal.Signals if s not in (9, 19) and signal.getsignal(s) == signal.SIG_IGN]';
    expect((await session().sh(`python3 -c "${ignored.replace('[s', 'print([s')})"`)).stdout).toBe(
      "['SIGPIPE', 'SIGXFSZ']\n",
    );
  });
});

describe('R27 a full disk', () => {
  const LIMIT_BYTES = 256 * 1024 * 1024;

  test.each(['/tmp', '/workspace'])(
    'R27 of %s says so, the sandbox lives on, and the host gets its room back',
    async (folder) => {
      const session = await stack().open({
        limits: { workspace_bytes: LIMIT_BYTES, tmp_bytes: LIMIT_BYTES },
      });
      const { sandbox_id: sandboxId } = await session.describe();
      const stored = join(stack().stack.stateDir, 'host/bundles', sandboxId ?? '');
      const most = watchMost(() => bytesBelow(stored));
      const filled = await session.sh(
        `head -c 2G /dev/zero > ${folder}/big; echo rc=$?; sleep 1; rm -f ${folder}/big; echo ok > ${folder}/s; cat ${folder}/s`,
        { timeoutMs: 60_000 },
      );
      expect(filled).toMatchObject({ status: 'succeeded', stdout: 'rc=1\nok\n' });
      expect(filled.stderr).toContain('No space left on device');
      const mostBytes = await most.stop();
      expect(mostBytes).toBeGreaterThan(LIMIT_BYTES / 2);
      expect(mostBytes).toBeLessThan(LIMIT_BYTES + 16 * 1024 * 1024);
      await session.delete();
      await until('its folder is gone', PATIENCE_MS, async () =>
        (await bytesBelow(stored)) === 0 ? true : undefined,
      );
    },
  );
});

describe('R66 a bomb', () => {
  test.each([
    ['of forks', 'shell', { command: 'f(){ f & f & wait; }; f' }],
    [
      'of threads',
      'python',
      { code: 'import threading, time\nwhile True: threading.Thread(target=time.sleep, args=(9,)).start()' },
    ],
    ['of processes in sessions of their own', 'shell', { command: 'while :; do setsid sleep 60 & done' }],
  ] as const)('R66 %s stays in its sandbox, which can be deleted', async (_name, tool, callArguments) => {
    const [bomb, quiet] = await Promise.all([stack().open(), stack().open()]);
    const { sandbox_id: sandboxId } = await bomb.describe();
    if (sandboxId === null) throw new Error('a running session has a sandbox');
    await quiet.sh('echo hi');
    const started = await bomb.detach(tool, callArguments, { timeoutMs: 5_000 });
    // Where the bomb leaves its machine no time the edge gives it up first, and hears of its end afterwards.
    const ended = until('the bomb has ended', TERMINAL_WITHIN_MS, async () => {
      const { status } = await bomb.execution(started.execution_id);
      return ['timeout', 'failed', 'oom', 'crashed'].includes(status) ? status : undefined;
    });
    let isOver = false;
    void ended.finally(() => {
      isOver = true;
    });
    const { stateDir } = stack().stack;
    const limit = Number(await cgroupFileOf(stateDir, sandboxId, 'pids.max'));
    expect(limit).toBeGreaterThan(0);
    const tasks: number[] = [];
    const answers: { value: { stdout: string }; elapsedMs: number }[] = [];
    do {
      answers.push(await timed(quiet.sh('echo hi')));
      const current = await cgroupFileOf(stateDir, sandboxId, 'pids.current').catch(() => '0');
      tasks.push(Number(current));
      await pause(500);
    } while (!isOver);
    await ended;
    expect(Math.max(...tasks)).toBeLessThanOrEqual(limit);
    expect(new Set(answers.map(({ value }) => value.stdout))).toEqual(new Set(['hi\n']));
    expect(Math.max(...answers.map((one) => one.elapsedMs))).toBeLessThan(STUCK_MS);

    const deleted = await timed(bomb.delete());
    expect(deleted.elapsedMs).toBeLessThan(STUCK_MS);
    await until('nothing of it is left', PATIENCE_MS, async () =>
      (await processesOfSandbox(stateDir, sandboxId)).length === 0 ? true : undefined,
    );
    await quiet.delete();
  });

  test('R66 ends with its call: nothing of it runs in the next', async () => {
    const session = await stack().open();
    await session.sh('f(){ sleep 60 & f & wait; }; f', { timeoutMs: 3_000 });
    const left = await session.sh(
      'cat /proc/[0-9]*/cmdline 2>/dev/null | tr "\\0" " " | grep -c "sleep 6[0]"',
    );
    expect(left.stdout).toBe('0\n');
    await session.delete();
  });
});

describe('a sandbox that dies', () => {
  test.each([
    ['Python', 'python', { code: 'kept = 1\nx = []\nwhile True: x.append(bytearray(16 * 1024 * 1024))' }],
    [
      'a shell',
      'shell',
      { command: "python3 -c 'x = []\nwhile True: x.append(bytearray(16 * 1024 * 1024))'" },
    ],
  ] as const)(
    'of its memory limit by %s says so, and the session works again',
    async (_name, tool, callArguments) => {
      const session = await stack().open({ limits: { memory_bytes: 256 * 1024 * 1024 } });
      await session.sh('export KEPT=1');
      const result = await session.execute(tool, callArguments, { timeoutMs: 30_000 });
      expect(['oom', 'failed']).toContain(result.status);
      // What the kernel killed is an ended program or the whole sandbox; either must be told.
      if (result.status === 'failed') expect(result.exit_code).not.toBe(0);
      const next = await session.sh('echo "$KEPT"');
      expect(next.status).toBe('succeeded');
      if (!result.state_lost && !next.state_lost) expect(next.stdout).toBe('1\n');
      expect((await session.py('40 + 2')).value).toBe('42');
      await session.delete();
    },
  );

  test('by a kill of its sentry is told as crashed, and the session works again', async () => {
    const session = await stack().open();
    const { sandbox_id: sandboxId } = await session.describe();
    const call = await session.stream('shell', { command: 'echo begin; sleep 60' }, { timeoutMs: 90_000 });
    let killedAtMs = 0;
    const { end, stdout } = await call.collectActingOn('begin', async () => {
      const processes = await processesOfSandbox(stack().stack.stateDir, sandboxId ?? '');
      const sentry = processes.find(({ command }) => command.startsWith('runsc-sandbox'));
      if (sentry === undefined) throw new Error(`no sentry of ${sandboxId} in ${JSON.stringify(processes)}`);
      process.kill(sentry.pid, 'SIGKILL');
      killedAtMs = performance.now();
    });
    expect(end).toMatchObject({ status: 'crashed', exit_code: null, state_lost: true });
    expect(stdout).toBe('begin\n');
    expect(performance.now() - killedAtMs).toBeLessThan(STUCK_MS);
    const next = await session.sh('echo again');
    expect(next).toMatchObject({ status: 'succeeded', stdout: 'again\n', state_lost: true });
    expect((await session.sh('echo third')).state_lost).toBe(false);
    await session.delete();
  });
});

describe('R01 a host that is silent', () => {
  test('R01 is not waited for beyond the timeout, and its late answer reaches no other call', async () => {
    const session = await stack().open();
    await session.sh('echo warm');
    const pid = stack().hostAgentPid();
    process.kill(pid, 'SIGSTOP');
    let executionId: string | undefined;
    try {
      const timeoutMs = 2_000;
      const call = await timed(
        session.sh('echo hi', { timeoutMs }).then(
          () => undefined,
          (error: unknown) => error,
        ),
      );
      expect(call.value).toBeInstanceOf(Refused);
      if (!(call.value instanceof Refused)) throw new Error('unreachable');
      expect(call.value.status).toBe(504);
      expect(call.value.problem).toMatchObject({ code: 'host_unresponsive', retryable: true });
      expect(call.elapsedMs).toBeLessThan(STUCK_MS);
      executionId = (await session.executions()).executions.find(
        (execution) => execution.status !== 'succeeded',
      )?.execution_id;
    } finally {
      process.kill(pid, 'SIGCONT');
    }
    const next = await until('the session runs calls again', PATIENCE_MS, async () =>
      session.sh('echo yo').catch((error: unknown) => {
        if (error instanceof Refused && error.problem.retryable) return undefined;
        throw error;
      }),
    );
    expect(next).toMatchObject({ status: 'succeeded', stdout: 'yo\n' });
    if (executionId !== undefined) {
      const late = await session.ended(executionId, PATIENCE_MS);
      expect(isTerminal(late.status)).toBe(true);
      expect(['', 'hi\n']).toContain(late.stdout);
    }
    await session.delete();
  });
});
