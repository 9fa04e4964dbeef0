/** A shell of a call is forked, and yet behaves as a `bash -c` that was started for it: each command is run in both. */
import { afterEach, beforeEach, expect, it } from 'vitest';
import { SessionShell, shellState } from '../../../../host-agent/guest-link/shell.ts';
import { ENVIRONMENT, type GuestUnderTest, must, Output } from '../guest-under-test.ts';

/** What differs between any two processes, in the output of `declare -p`. */
const OWN_VARIABLES = 'BASHPID|PPID|RANDOM|SRANDOM|EPOCHSECONDS|EPOCHREALTIME|SECONDS|BASH_EXECUTION_STRING';

const COMMANDS: readonly (readonly [string, readonly string[]])[] = [
  [
    'has the same variables and parameters',
    [
      `declare -p | grep -vE "^declare [^ ]+ (${OWN_VARIABLES})="`,
      `echo "$0|$#|$*|$-|$BASH_SUBSHELL|$SHLVL|$_|\${BASH_SOURCE[*]}|\${FUNCNAME[*]}|\${BASH_LINENO[*]}"`,
      'echo "$BASH_EXECUTION_STRING"',
      'env | sort',
      'sh -c "echo \\$SHLVL"; exec sh -c "echo \\$SHLVL"',
      'echo $((BASHPID == $$)) $(($$ == $(sh -c "echo \\$PPID")))',
      'test -d /proc/$PPID && echo the parent lives',
      'BASH_ARGV0=other; echo $0',
      // What the next shell is forked from grows old meanwhile, and the shell must not.
      'sleep 4',
      'echo $((SECONDS <= 2)) $(($(date +%s) - $(printf "%(%s)T" -2) <= 2))',
      'echo $OLDPWD; cd /usr; cd -; dirs; pushd /tmp; popd',
    ],
  ],
  [
    'has the same options, builtins and limits, and nothing is left over',
    [
      'set -o; set +o; shopt; shopt -o',
      'enable -a; enable -n; declare -F; alias; hash; complete -p; jobs; trap; dirs',
      'history; fc -l; set -o history; echo listed; history',
      'umask; ulimit -a; ulimit -aH',
      'set -x; echo traced; set +x; set -v',
    ],
  ],
  [
    'has the same signals and open files',
    [
      'while read -r name value; do case $name in Sig[PBIC]*) echo $value;; esac; done < /proc/$$/status',
      'grep -E "^Sig[PBIC]" /proc/self/status',
      'trap -p; (trap -p); trap "echo got" USR1; kill -USR1 $$; trap -p',
      '(exec ls /proc/self/fd); [ -t 0 ]; echo $?; [ -p /dev/stdin ]; echo $?',
      'cat; read line; echo "$? [$line]"',
      'exec 3>&1; echo three >&3; exec 3>&-; echo closed >&3',
      'ps -o sid= -p $$ 2> /dev/null | wc -l; set -m; (exit 2) & wait $!; echo $?',
      `yes | head -n 1; echo \${PIPESTATUS[@]}`,
    ],
  ],
  [
    'ends the same way',
    [
      'exit 7',
      'exit 300',
      'return 4; echo $?',
      '(exit 3)',
      'false',
      'no-such-program',
      'exec no-such-program; echo no',
      'exec true; echo no',
      'exec -a other sh -c "echo \\$0"',
      'set -e; false; echo no',
      'set -u; echo $nope; echo no',
      'set -o pipefail; false | true; echo $?; (exit 5) | true',
      `echo \${nope:?is missing}; echo no`,
      'readonly fixed=1; fixed=2; echo no',
      'kill -TERM $$; echo no',
      'kill -HUP $$; echo no',
      'kill -INT $$; echo no',
      'kill -QUIT $$; echo yes',
      'kill -KILL $$; echo no',
      'trap "echo bye" EXIT; kill -TERM $$; echo no',
      'trap "echo bye $?" EXIT; exit 3',
      'trap "echo caught" INT; kill -INT $$; echo after',
      'sh -c "kill -INT \\$\\$"; echo $?',
      'suspend; echo $?',
    ],
  ],
  [
    'says the same of what it cannot parse',
    [
      'x=(1',
      "echo 'open",
      'if true; then',
      'echo before\nfi',
      'echo $(',
      'for; do',
      'cat <<END\nno end',
      '((1 +',
      'echo one; }',
      '',
      '# nothing',
    ],
  ],
  [
    'runs the same things inside',
    [
      `echo $LINENO\necho $LINENO\nf() { echo $LINENO \${FUNCNAME[@]}; caller; }\nf`,
      'trap "echo D \\$BASH_COMMAND" DEBUG; true; trap - DEBUG; trap "echo E \\$LINENO" ERR; false; true',
      'cat <(echo a) <(echo b); echo c > >(cat); wait; cat <<< here; cat <<END\n$((1 + 1))\nEND',
      `coproc cat; echo hi >&\${COPROC[1]}; read -u \${COPROC[0]} line; echo $line`,
      'sleep 0.01 & wait $!; echo $?; jobs; sleep 0.01 & wait -n; echo $?',
      'shopt -s extglob nullglob\necho /usr/@(bin|lib) /nope*',
      'eval "echo one; eval \\"echo two\\""; source /dev/stdin <<< "echo three; return 3"; echo $?',
      'while getopts ab: o -a -b 1; do echo $o $OPTARG; done; set -- x y; echo $# $1',
      `s=é漢; echo \${#s} \${s:1}; LC_ALL=C; echo \${#s}; printf "%q\\n" "$s"`,
      `declare -A map=([a]=1 [b]=2); echo \${map[a]} \${#map[@]}; unset map; local x`,
      'set -o posix; echo $-; shopt -o posix; set +o posix; set -o | grep posix',
      'bash -c "echo \\$0 \\$1 \\$SHLVL" zero one; echo "echo piped \\$-" | bash',
      '/bin/true',
    ],
  ],
];

export function describeShellAsBash(guest: () => GuestUnderTest): void {
  let shell: SessionShell;

  const newShell = (options: { keepsSpare?: boolean; bash?: string } = {}) =>
    new SessionShell(guest().link, {
      state: shellState(guest().work, ENVIRONMENT),
      home: guest().work,
      library: `${guest().programs}/shell.so`,
      ...options,
    });
  beforeEach(() => {
    shell = newShell();
  });
  afterEach(() => shell.dispose());

  const runInShell = async (command: string, environment: readonly string[]) => {
    shell.state = shellState(guest().work, environment);
    const output = new Output();
    const call = must(await shell.run({ command, onOutput: output.sink }));
    const { exitCode, signal } = must(await call.outcome);
    return { command, exitCode, signal, stdout: output.text(), stderr: output.text('stderr') };
  };
  const runInBash = async (command: string, environment: readonly string[]) => {
    const output = new Output();
    const argv = ['bash', '-c', command];
    const place = { cwd: guest().work, environment };
    const channel = must(await guest().link.spawn({ argv, ...place, onOutput: output.sink }));
    channel.closeStdin();
    const { exitCode, signal } = must(await channel.exited);
    await channel.release(10_000);
    return { command, exitCode, signal, stdout: output.text(), stderr: output.text('stderr') };
  };
  const compare = async (command: string, environment: readonly string[] = ENVIRONMENT) => {
    const [ours, real] = [await runInShell(command, environment), await runInBash(command, environment)];
    expect({ ...ours, exitCode: ours.signal === null ? ours.exitCode : null }).toEqual(real);
  };

  /** One that is made when its call comes is made ready for what that starts from; one that waited was so for something else. */
  const useShell = async (kind: 'prepared' | 'waiting') => {
    if (kind === 'waiting') return;
    await shell.dispose();
    shell = newShell({ keepsSpare: false });
  };

  it.each(COMMANDS)('%s', async (_title, commands) => {
    for (const command of commands) await compare(command);
  });

  it.each(COMMANDS)('%s, where it is prepared for what the call starts from', async (_title, commands) => {
    await useShell('prepared');
    for (const command of commands) await compare(command, [...ENVIRONMENT, `PWD=${guest().work}`]);
  });

  it.each(['waiting', 'prepared'] as const)(
    'begins with what the environment says, as a bash does (%s)',
    async (kind) => {
      await useShell(kind);
      const startup = `${guest().work}/startup`;
      await runInShell(`echo 'echo from startup $0 $-; ALSO=1; /bin/true' > ${startup}`, ENVIRONMENT);
      await compare('echo "[$ALSO]"', [...ENVIRONMENT, `BASH_ENV=${startup}`]);
      await compare('set -o | grep posix; echo $-', [...ENVIRONMENT, 'POSIXLY_CORRECT=1']);
      await compare('env | sort', [
        'PATH=/usr/bin:/bin',
        'not a name=1',
        'A=1',
        'A=2',
        'SHLVL=5',
        '_=before',
      ]);
      await compare('f; type f', [...ENVIRONMENT, 'BASH_FUNC_f%%=() { echo imported; }']);
      await compare('g; echo $?', [...ENVIRONMENT, 'BASH_FUNC_g%%=() { echo broken']);
      await compare(`s=é; echo \${#s}; env | sort`, ['PATH=/usr/bin:/bin']);
      await compare(`s=é; echo \${#s}`, [...ENVIRONMENT, 'LC_ALL=C']);
      await compare(`s=é; echo \${#s}`, [...ENVIRONMENT, 'LC_ALL=xx_YY.nope']);
      await compare('echo "$PWD" $HOME $IFS', ['PATH=/usr/bin:/bin', 'PWD=/usr', 'IFS=x', 'HOME=/home']);
      await compare('echo "$PATH"', ['A=1']);
    },
  );

  it('begins with a folder and one before it as they are when the call comes', async () => {
    const [here, before] = [`${guest().work}/here`, `${guest().work}/before`];
    await useShell('prepared');
    const environment = [...ENVIRONMENT, `PWD=${here}`, `OLDPWD=${before}`];
    await runInShell(`mkdir ${here} ${before}`, ENVIRONMENT);
    shell.state = shellState(here, environment);
    must(await shell.warm());
    const other = newShell();
    const remade = must(
      await other.run({
        command: `rmdir ${here} ${before}; mkdir ${here}; : > ${here}/new`,
        onOutput: () => {},
      }),
    );
    must(await remade.outcome);
    await other.dispose();
    const look = `pwd; ls; ls -a "$PWD"; echo "\${OLDPWD-none}"; cd - 2>&1; export -p | grep OLDPWD`;
    const output = new Output();
    const call = must(await shell.run({ command: look, onOutput: output.sink }));
    must(await call.outcome);
    expect(output.text().split('\n').slice(0, 2)).toEqual([here, 'new']);
    expect(output.text()).toContain('none');
  });

  it('says each time what bash has to say at its beginning', async () => {
    const state = shellState(guest().work, [...ENVIRONMENT, `PWD=${guest().work}`, 'LC_ALL=xx_YY.nope']);
    for (let call = 0; call < 3; call++) {
      shell.state = state;
      await shell.settled();
      const output = new Output();
      must(await must(await shell.run({ command: 'echo ran', onOutput: output.sink })).outcome);
      expect(output.text('stderr')).toContain('cannot change locale (xx_YY.nope)');
      expect(output.text()).toBe('ran\n');
    }
  });

  it('counts its seconds from when the call comes', async () => {
    must(await shell.warm());
    await new Promise((resolve) => setTimeout(resolve, 1_100));
    const { stdout } = await runInShell('echo $SECONDS', ENVIRONMENT);
    expect(stdout).toBe('0\n');
  });

  it('keeps its state through more changes than one template makes', async () => {
    for (let call = 0; call < 80; call++) {
      const output = new Output();
      const command = `echo "$LAST"; export LAST=${call}`;
      must(await must(await shell.run({ command, onOutput: output.sink })).outcome);
      expect(output.text()).toBe(call === 0 ? '\n' : `${call - 1}\n`);
    }
  });

  it('has random numbers of its own in each call', async () => {
    const drawn = new Set<string>();
    for (let call = 0; call < 5; call++)
      drawn.add((await runInShell('echo $RANDOM $RANDOM $RANDOM', ENVIRONMENT)).stdout);
    expect(drawn.size).toBe(5);
  });

  it('is a process of its own in each call, and a leader of its session', async () => {
    const first = await runInShell(
      `echo $$; read -r stat < /proc/$$/stat; set -- \${stat##*) }; echo $3 $4`,
      ENVIRONMENT,
    );
    const [pid, ids] = first.stdout.trim().split('\n');
    expect(ids).toBe(`${pid} ${pid}`);
    expect((await runInShell('echo $$', ENVIRONMENT)).stdout.trim()).not.toBe(pid);
  });

  it('starts without a template where bash is not one to fork', async () => {
    await shell.dispose();
    const wrapper = `${guest().work}/bash-that-is-no-template`;
    shell = newShell({ bash: wrapper });
    const script = `#!/bin/sh\ncase $2 in /*) exit 1;; esac\nexec bash "$@"\n`;
    const made = await runInBash(`printf %s '${script}' > ${wrapper}; chmod +x ${wrapper}`, ENVIRONMENT);
    expect(made.exitCode).toBe(0);
    expect(await runInShell('export KEPT=1; cd /usr; echo $0', ENVIRONMENT)).toMatchObject({
      stdout: 'bash\n',
    });
    expect(Buffer.from(shell.state.cwd).toString()).toBe('/usr');
    expect(await runInShell('echo again', ENVIRONMENT)).toMatchObject({ stdout: 'again\n', exitCode: 0 });
  });
}
