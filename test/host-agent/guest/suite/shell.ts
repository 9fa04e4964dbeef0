/** The shell: a bash of its own for each call, with the folder and the exported variables of the ones before. */
import { afterEach, beforeEach, expect, it } from 'vitest';
import { SessionShell, shellState } from '../../../../host-agent/guest-link/shell.ts';
import { bash, ENVIRONMENT, eventually, type GuestUnderTest, must, Output } from '../guest-under-test.ts';

export function describeShell(guest: () => GuestUnderTest): void {
  let shell: SessionShell;

  beforeEach(() => {
    shell = new SessionShell(guest().link, {
      state: shellState(guest().work, ENVIRONMENT),
      home: guest().work,
      library: `${guest().programs}/shell.so`,
    });
  });
  afterEach(async () => {
    await shell.dispose();
  });

  const begin = async (command: string, stdin: 'closed' | 'open' = 'closed') => {
    const output = new Output();
    const call = must(await shell.run({ command, onOutput: output.sink, stdin }));
    return { call, output };
  };
  const run = async (command: string) => {
    const { call, output } = await begin(command);
    const { exitCode, signal, state, stateSaved } = must(await call.outcome);
    const cwd = Buffer.from(state.cwd).toString();
    return {
      exitCode,
      signal,
      cwd,
      stateSaved,
      stdout: output.text(),
      stderr: output.text('stderr'),
      output,
    };
  };
  const environment = (name: string) =>
    Buffer.from(shell.state.environment)
      .toString('latin1')
      .split('\0')
      .map((variable) => Buffer.from(variable, 'latin1'))
      .find((variable) => variable.toString('latin1').startsWith(`${name}=`));

  it('lives on after exit, set -e and exec (R38)', async () => {
    expect(await run('cd /tmp; exit 7')).toMatchObject({ exitCode: 7, signal: null, cwd: '/tmp' });
    expect(await run('pwd; echo alive')).toMatchObject({ exitCode: 0, stdout: '/tmp\nalive\n' });
    expect(await run('set -e; false; echo no')).toMatchObject({ exitCode: 1, stdout: '' });
    expect(await run('false; echo after')).toMatchObject({ exitCode: 0, stdout: 'after\n' });
    expect(await run('cd /usr; exec true')).toMatchObject({ exitCode: 0, cwd: '/usr' });
    expect(await run('exec no-such-program')).toMatchObject({ exitCode: 127 });
    expect(await run('echo ok; pwd')).toMatchObject({ stdout: 'ok\n/usr\n' });
  });

  it.each([
    ['KILL', 137, 'SIGKILL'],
    ['SEGV', 139, 'SIGSEGV'],
    ['TERM', 143, 'SIGTERM'],
  ])(
    'reports that the shell died by SIG%s, and keeps the state from before (R68)',
    async (name, exitCode, signal) => {
      await run('cd /usr; export KEPT=1');
      expect(await run(`cd /tmp; export KEPT=2; kill -${name} $$`)).toMatchObject({
        exitCode,
        signal,
        stateSaved: false,
      });
      expect(await run('echo $KEPT; pwd')).toMatchObject({ stdout: '1\n/usr\n' });
    },
  );

  it('does not inherit an ignored SIGPIPE (R68)', async () => {
    expect(await run(`yes | head -n 1; echo \${PIPESTATUS[0]}`)).toMatchObject({
      exitCode: 0,
      stdout: 'y\n141\n',
    });
  });

  it.each([
    [`printf '10%%\\r50%%\\r100%%'`, '10%\r50%\r100%'],
    [`printf 'end'`, 'end'],
    [`printf ''`, ''],
    [`printf '\\033[31mred\\033[0m'`, '\x1b[31mred\x1b[0m'],
  ])('carries the output of %s as it is (R35)', async (command, stdout) => {
    expect(await run(command)).toMatchObject({ exitCode: 0, stdout, stderr: '' });
  });

  it('carries characters of several bytes, also in pieces (R12)', async () => {
    const pieces = `for x in c3 a9 e6 bc a2 f0 9f 98 80 0a; do printf "\\x$x"; sleep 0.02; done`;
    expect((await run(pieces)).stdout).toBe('é漢😀\n');
  });

  it('keeps exported variables and functions, and drops the others', async () => {
    await run(
      `export A='x  y' B=$'line\\nline'; C=local; f() { echo "f says $A"; }; export -f f; g() { :; }`,
    );
    expect((await run('f; echo "$B"; echo "[$C]"; type g')).stdout).toBe('f says x  y\nline\nline\n[]\n');
    await run('unset A; export -n B');
    expect((await run('echo "[$A$B]"')).stdout).toBe('[]\n');
    await run('A=1 env > /dev/null');
    expect((await run('echo "[$A]"')).stdout).toBe('[]\n');
  });

  it('lives on after a command took the path away, and finds programs again with a new one (R38)', async () => {
    expect(await run('export PATH=/nope')).toMatchObject({ exitCode: 0 });
    expect(await run('echo "$PATH"; no-such-program')).toMatchObject({ exitCode: 127, stdout: '/nope\n' });
    expect(await run('echo once more')).toMatchObject({ exitCode: 0, stdout: 'once more\n' });
    expect(await run('export PATH=/usr/bin:/bin; cat /dev/null && echo found')).toMatchObject({
      stdout: 'found\n',
    });
  });

  it('does not carry options over, however they are exported (R38)', async () => {
    await run('export SHELLOPTS BASHOPTS; set -n');
    expect(await run('echo hello; false')).toMatchObject({ exitCode: 1, stdout: 'hello\n' });
    expect(environment('SHELLOPTS')).toBeUndefined();
  });

  it('keeps values and folders that are not UTF-8', async () => {
    const { work } = guest();
    await run(`export RAW=$'a\\xff\\xfeb'; mkdir -p ${work}/$'d\\xff'; cd ${work}/$'d\\xff'`);
    expect(environment('RAW')).toEqual(Buffer.from('RAW=a\xff\xfeb', 'latin1'));
    const { output } = await run('printf %s "$RAW"; pwd');
    expect(output.bytes('stdout')).toEqual(Buffer.from(`a\xff\xfeb${work}/d\xff\n`, 'latin1'));
  });

  it('runs a trap on exit, and keeps the state it leaves', async () => {
    expect(await run(`trap 'echo bye' EXIT; cd /usr; export T=1; exit 3`)).toMatchObject({
      exitCode: 3,
      stdout: 'bye\n',
    });
    expect((await run('echo $T; pwd')).stdout).toBe('1\n/usr\n');
  });

  it('keeps the state from before of a script that the shell runs in its own process', async () => {
    await run(`cd ${guest().work}; printf 'cd /; export LEAK=1' > script; chmod +x script`);
    await run('export MINE=1; exec ./script');
    expect((await run('echo "[$LEAK$MINE]"; pwd')).stdout).toBe(`[1]\n${guest().work}\n`);
  });

  it('looks like a bash that was called with the command', async () => {
    expect((await run('echo $0 $# $-; declare -F; alias; trap; echo $((BASHPID == $$))')).stdout).toBe(
      'bash 0 hBc\n1\n',
    );
    const { stdout } = await run(
      'env | cut -d= -f1 | grep -v -e PWD -e SHLVL -e "^_$" | sort | tr "\\n" " "',
    );
    expect(stdout).toBe('HOME LANG PATH ');
    expect((await run('(exec ls /proc/self/fd)')).stdout).toBe('0\n1\n2\n3\n');
    expect((await run('x=(1')).exitCode).not.toBe(0);
  });

  it('starts the next call at home when the folder is gone', async () => {
    await run(`mkdir -p ${guest().work}/gone; cd ${guest().work}/gone; rmdir ../gone`);
    const { stdout, stderr } = await run('pwd');
    expect(stdout).toBe(`${guest().work}\n`);
    expect(stderr).toContain('it is gone');
  });

  it('reads standard input only where it is given', async () => {
    expect((await run('cat; echo end')).stdout).toBe('end\n');
    const { call, output } = await begin('read line; echo "got $line"; cat', 'open');
    must(await call.writeStdin(Buffer.from('one\ntwo\n')));
    call.closeStdin();
    expect(must(await call.outcome).exitCode).toBe(0);
    expect(output.text()).toBe('got one\ntwo\n');
  });

  it('keeps the variables from before where a command says what is none, or too many (K5)', async () => {
    await run('export KEPT=1');
    const before = shell.state.environment;
    const forge = async (body: string) => {
      const code = `import os, sys; body = b"\\1/tmp\\0" + ${body}; sys.stdout.buffer.write(len(body).to_bytes(4, "big") + body)`;
      await run(`python3 -c '${code}' >&199; kill -9 $$`);
      expect(shell.state.environment).toEqual(before);
    };
    await forge('b"\\0" * 1_000_000');
    await forge('b"A=\\0" * 5_000');
    await forge('b"=\\0"');
    await forge('b"A=1"');
    expect((await run('echo $KEPT $PWD')).stdout).toBe('1 /tmp\n');
  });

  it('takes a command of a megabyte and a state of many variables', async () => {
    expect((await run(`: ${'x'.repeat(1_000_000)}\necho end`)).stdout).toBe('end\n');
    await run(`for i in $(seq 500); do export V$i=${'y'.repeat(500)}; done`);
    expect((await run('echo $V1 | wc -c; echo $V500 | wc -c')).stdout).toBe('501\n501\n');
    const before = shell.state;
    const huge = await run('for i in $(seq 30); do printf -v X$i %050000d $i; export X$i; done');
    expect(huge.exitCode).toBe(0);
    expect(shell.state.environment).toEqual(before.environment);
    expect(await shell.run({ command: 'a\0b', onOutput: () => undefined })).toMatchObject({
      failure: { reason: 'limit' },
    });
  });

  it('keeps the state of one call apart from that of one that runs at the same time', async () => {
    const [a, b] = await Promise.all([
      begin('export K=a; cd /tmp; sleep 0.2; echo $K $PWD'),
      begin('export K=b; cd /; sleep 0.2; echo $K $PWD'),
    ]);
    await Promise.all([a.call.outcome, b.call.outcome]);
    expect([a.output.text(), b.output.text()]).toEqual(['a /tmp\n', 'b /\n']);
  });

  it('lets a server in the background live on, up to its disposal', async () => {
    const file = `${guest().work}/served`;
    await run(`(while true; do sleep 0.02; echo noise; touch ${file}; done) &`);
    await run(`rm -f ${file}`);
    await eventually('it serves', async () => (await bash(guest(), `test -e ${file}`)).exitCode === 0);
    await shell.dispose();
    expect((await bash(guest(), `rm ${file}; sleep 0.2; test -e ${file}`)).exitCode).toBe(1);
  });

  it('interrupts a call', async () => {
    const { call, output } = await begin(`trap 'echo caught; exit 9' INT; echo begun; sleep 1000`);
    await eventually('it runs', () => output.text() === 'begun\n');
    let ended = false;
    const outcome = call.outcome.finally(() => {
      ended = true;
    });
    /* A bash that forks at this very moment misses the signal, as it would one from a terminal. */
    await eventually('it ends', () => {
      if (!ended) call.interrupt();
      return ended;
    });
    expect(must(await outcome).exitCode).toBe(9);
    expect(output.text()).toBe('begun\ncaught\n');
  });

  it('stops a call with everything it started and gives the output so far', async () => {
    const { call, output } = await begin(
      `trap '' INT TERM; setsid sleep 2345 & (setsid sleep 2346 &); echo begun; while true; do sleep 1; done`,
    );
    await eventually('it runs', () => output.text() === 'begun\n');
    await call.stop(50);
    expect(must(await call.outcome)).toMatchObject({ exitCode: 137, signal: 'SIGKILL' });
    const left = await bash(guest(), 'cat /proc/[0-9]*/cmdline | tr "\\0" "\\n" | grep -c -x 234[56]');
    expect(left.stdout).toBe('0\n');
    expect((await run('echo next')).stdout).toBe('next\n');
  });

  it('stops a call whose output nobody takes', async () => {
    let bytes = 0;
    const call = must(
      await shell.run({
        command: 'yes',
        onOutput: (_, part) => {
          bytes += part.byteLength;
          return new Promise(() => undefined);
        },
      }),
    );
    await eventually('the window is full', () => bytes === 1024 * 1024);
    await call.stop(0);
    expect(must(await call.outcome).signal).toBe('SIGKILL');
  });

  /** Kills what the shells come from: the template (depth 0), the keepers below it (1), or the shells themselves (2). */
  const killAtDepth = (depth: number) =>
    bash(
      guest(),
      `declare -A all
      for p in /proc/[0-9]*; do
        test "$(tr "\\0" " " < $p/cmdline)" = "bash -c ${guest().programs}/shell.so " || continue
        while read -r name value; do test $name = PPid: && all[\${p#/proc/}]=$value; done < $p/status
      done
      for pid in \${!all[@]}; do
        depth=0
        for ((up = \${all[$pid]}; all[$up]; up = all[$up])); do ((depth++)); done
        test $depth = ${depth} && kill -9 $pid && echo killed
      done`,
    );

  it.each([
    ['template', 0],
    ['keeper', 1],
    ['shell', 2],
  ])('goes on when the waiting %s was killed', async (_what, depth) => {
    must(await shell.warm());
    await eventually('one is there', async () => (await killAtDepth(depth)).stdout.includes('killed\n'));
    for (let call = 0; call < 3; call++) expect((await run('echo alive')).stdout).toBe('alive\n');
  });

  it('lets no program of a call speak to the shells that wait, or to what they come from (K6)', async () => {
    must(await shell.warm());
    const { stdout } = await run(
      `for fd in /proc/[0-9]*/fd/19[89]; do
        (printf "\\0\\0\\0\\1\\2\\0\\0\\0" > $fd) 2> /dev/null && echo wrote to $fd
      done`,
    );
    expect(stdout).toBe('');
    expect((await run('echo untouched')).stdout).toBe('untouched\n');
  });

  it('keeps what runs when the template is killed', async () => {
    const file = `${guest().work}/background`;
    await run(`(while true; do sleep 0.02; touch ${file}; done) &`);
    const { call, output } = await begin('echo begun; read line; echo "got $line"', 'open');
    await eventually('it runs', () => output.text() === 'begun\n');
    await eventually('it is killed', async () => (await killAtDepth(0)).stdout === 'killed\n');
    await run('echo another');
    must(await call.writeStdin(Buffer.from('input\n')));
    expect(must(await call.outcome).exitCode).toBe(0);
    expect(output.text()).toBe('begun\ngot input\n');
    await run(`rm -f ${file}`);
    await eventually('it goes on', async () => (await bash(guest(), `test -e ${file}`)).exitCode === 0);
    await shell.dispose();
    expect((await bash(guest(), `rm ${file}; sleep 0.2; test -e ${file}`)).exitCode).toBe(1);
  });

  it('ends a call whose keeper is killed, with what it started', async () => {
    const { call, output } = await begin('setsid sleep 2347 & echo begun; while true; do sleep 0.1; done');
    await eventually('it runs', () => output.text() === 'begun\n');
    await killAtDepth(1);
    expect(must(await call.outcome).signal).toBe('SIGKILL');
    await eventually('nothing is left', async () => {
      const left = await bash(guest(), 'cat /proc/[0-9]*/cmdline | tr "\\0" "\\n" | grep -c -x 2347');
      return left.stdout === '0\n';
    });
    expect((await run('echo next')).stdout).toBe('next\n');
  });

  it('does not believe a command that writes to the control pair, and runs it once only', async () => {
    const command = `echo ran >> ${guest().work}/runs; printf "\\xff\\xff\\xff\\xff" >&199; cd /usr`;
    for (let round = 1; round <= 10; round++) {
      expect(await run(command)).toMatchObject({ exitCode: 0 });
      expect((await run(`wc -l < ${guest().work}/runs`)).stdout).toBe(`${round}\n`);
    }
  });
}
