/** Programs: how they start, how they end, and how everything they started is found and ended. */
import { expect, it } from 'vitest';
import { PATIENCE_MS } from '../../../patience.ts';
import { bash, ENVIRONMENT, eventually, type GuestUnderTest, must, startBash } from '../guest-under-test.ts';

export function describeProcesses(guest: () => GuestUnderTest): void {
  const exists = async (file: string) => (await bash(guest(), `test -e ${file}`)).exitCode === 0;

  it('answers a ping', async () => {
    const pong = must(await guest().link.ping(PATIENCE_MS));
    expect(pong.roundTripMs).toBeGreaterThan(0);
  });

  it('reports the exit code of a program', async () => {
    expect(await bash(guest(), 'echo out; echo err >&2; exit 7')).toMatchObject({
      exitCode: 7,
      signal: null,
      stdout: 'out\n',
      stderr: 'err\n',
    });
  });

  it.each([
    ['KILL', 'SIGKILL'],
    ['SEGV', 'SIGSEGV'],
    ['TERM', 'SIGTERM'],
  ])('reports death by %s as a signal', async (name, signal) => {
    expect(await bash(guest(), `kill -${name} $$`)).toMatchObject({ exitCode: null, signal });
  });

  it('says why a program cannot start', async () => {
    const start = (argv: string[], cwd: string) =>
      guest().link.spawn({ argv, cwd, environment: ENVIRONMENT });
    expect(await start(['no-such-program'], '/')).toMatchObject({ failure: { errno: 'ENOENT' } });
    expect(await start(['/etc/passwd'], '/')).toMatchObject({ failure: { errno: 'EACCES' } });
    expect(await start(['true'], '/no/such/folder')).toMatchObject({ failure: { errno: 'ENOENT' } });
    expect(await start(['true', 'a\0b'], '/')).toMatchObject({ failure: { errno: 'EINVAL' } });
    expect(await start([], '/')).toMatchObject({ failure: { errno: 'EINVAL' } });
    expect((await bash(guest(), 'echo fine')).stdout).toBe('fine\n');
  });

  it('gives a program its folder, its environment and nothing else', async () => {
    const { stdout } = await bash(
      guest(),
      'pwd; env | grep -v -e ^_= -e ^SHLVL= -e ^PWD= | sort; exec ls /proc/self/fd',
    );
    const descriptors = stdout.split('\n').slice(1 + ENVIRONMENT.length, -1);
    expect(stdout.startsWith(`${guest().work}\n${[...ENVIRONMENT].sort().join('\n')}\n`)).toBe(true);
    expect(descriptors).toEqual(['0', '1', '2', '3']);
  });

  it('starts programs with default signals: a closed pipe ends its writer', async () => {
    expect((await bash(guest(), `yes | head -n 1; echo \${PIPESTATUS[0]}`)).stdout).toBe('y\n141\n');
    const { stdout } = await bash(guest(), 'grep -E "Sig(Blk|Ign)" /proc/self/status || true');
    for (const line of stdout.split('\n').filter(Boolean)) expect(line).toMatch(/\t0+$/);
  });

  it('ends a call with its main process, and a child in the background lives on with its output dropped', async () => {
    const file = `${guest().work}/background`;
    const { channel, output } = await startBash(
      guest(),
      `(trap 'touch ${file}.broken' PIPE; until test -e ${file}.go; do sleep 0.02; done; yes | head -c 1000000; touch ${file}) & echo started`,
    );
    expect(must(await channel.exited).exitCode).toBe(0);
    expect(output.text()).toBe('started\n');
    expect(channel.isGone).toBe(false);
    await bash(guest(), `touch ${file}.go`);
    await channel.gone;
    expect(await exists(file)).toBe(true);
    expect(await exists(`${file}.broken`)).toBe(false);
    expect(output.text()).toBe('started\n');
    must(await channel.release(PATIENCE_MS));
  });

  it('kills descendants that left their parent, their group and their session', async () => {
    const file = `${guest().work}/alive`;
    const beat = `while true; do date +%s%N > ${file}.$1; sleep 0.02; done`;
    const { channel } = await startBash(
      guest(),
      `b() { ${beat}; }; export -f b; setsid bash -c 'b 1' & (setsid bash -c '(setsid bash -c "b 2" &)' &); nohup bash -c 'b 3' & trap '' TERM INT; b 4`,
    );
    await eventually(
      'all four write',
      async () => (await bash(guest(), `ls ${file}.1 ${file}.2 ${file}.3 ${file}.4`)).exitCode === 0,
    );
    expect(must(await channel.killSinceMark(PATIENCE_MS)).killed).toBeGreaterThanOrEqual(4);
    await channel.gone;
    const beats = `cat ${file}.*`;
    const before = (await bash(guest(), beats)).stdout;
    const after = (await bash(guest(), `sleep 0.2; ${beats}`)).stdout;
    expect(after).toBe(before);
    expect(must(await channel.exited).signal).toBe('SIGKILL');
    must(await channel.release(PATIENCE_MS));
  });

  it('kills a process whose first thread has ended while others go on', async () => {
    const file = `${guest().work}/leaderless`;
    const program = [
      'import ctypes, sys, threading, time',
      'def beat():',
      '    while True:',
      '        state = open("/proc/self/stat").read().split()[2]',
      '        open(sys.argv[1], "a").write(f"{state} {time.monotonic()}\\n")',
      '        time.sleep(0.02)',
      'threading.Thread(target=beat).start()',
      'ctypes.CDLL(None).pthread_exit(None)',
    ].join('\n');
    await bash(guest(), `cat > ${file}.py <<'EOF'\n${program}\nEOF`);
    const beat = (name: string) => `python3 ${file}.py ${file}.${name}`;
    const { channel } = await startBash(guest(), `setsid ${beat('other')} & exec ${beat('main')}`);
    await eventually(
      'both write, and their first threads have ended',
      async () => (await bash(guest(), `grep -q Z ${file}.main && grep -q Z ${file}.other`)).exitCode === 0,
    );
    must(await channel.release(PATIENCE_MS));
    await channel.gone;
    const beats = `cat ${file}.main ${file}.other`;
    const before = (await bash(guest(), beats)).stdout;
    expect((await bash(guest(), `sleep 0.2; ${beats}`)).stdout).toBe(before);
  });

  it('ends processes that start others faster than one look at them takes', async () => {
    const { channel } = await startBash(
      guest(),
      'f() { while true; do (sleep 0.01; true) & wait; done; }; for i in 1 2 3 4 5 6 7 8 9 10; do setsid bash -c "$(declare -f f); f" & done; wait',
    );
    await eventually('it runs', async () => must(await guest().link.ping(PATIENCE_MS)).roundTripMs > 0);
    must(await channel.release(PATIENCE_MS));
    await channel.gone;
  });

  it('spares what existed at the mark', async () => {
    const { work } = guest();
    const { channel } = await startBash(
      guest(),
      `sleep 1000 & echo $! > ${work}/old; touch ${work}/marked-ready; read line; sleep 1001 & echo $! > ${work}/new; wait`,
    );
    await eventually('the first child', () => exists(`${work}/marked-ready`));
    channel.mark();
    must(await channel.writeStdin(Buffer.from('go\n')));
    await eventually('the second child', () => exists(`${work}/new`));
    expect(must(await channel.killSinceMark(PATIENCE_MS)).killed).toBe(1);
    const alive = (name: string) => bash(guest(), `kill -0 $(cat ${work}/${name})`);
    expect((await alive('old')).exitCode).toBe(0);
    expect((await alive('new')).exitCode).toBe(1);
    must(await channel.release(PATIENCE_MS));
    expect((await alive('old')).exitCode).toBe(1);
  });

  it('sends a signal to one process or to the whole tree', async () => {
    const script = `trap 'echo main; exit 3' INT; bash -c "trap 'echo child' INT; echo ready; while true; do sleep 0.02; done" & while true; do sleep 0.02; done`;
    const only = await startBash(guest(), script);
    await eventually('it is ready', () => only.output.text().includes('ready'));
    only.channel.signal('SIGINT', 'process');
    expect(must(await only.channel.exited).exitCode).toBe(3);
    expect(only.output.text()).toBe('ready\nmain\n');
    must(await only.channel.release(PATIENCE_MS));
  });

  it('survives a program that kills everything it may kill', async () => {
    const { channel } = await startBash(guest(), 'sleep 1000 & read go; kill -9 -1; kill -9 $$');
    must(await channel.writeStdin(Buffer.from('go\n')));
    await channel.gone;
    expect(must(await channel.exited).signal).toBe('SIGKILL');
    must(await channel.killSinceMark(PATIENCE_MS));
    must(await channel.release(PATIENCE_MS));
    await eventually('nothing of it is left', async () => {
      const { stdout } = await bash(guest(), 'cat /proc/[0-9]*/cmdline | tr "\\0" " "');
      return !stdout.includes('sleep 1000');
    });
  });

  it('refuses more programs than it has room for, and has room again', async () => {
    const open = [];
    for (let i = 0; i < 64; i++) {
      const started = await guest().link.spawn({ argv: ['cat'], cwd: '/', environment: ENVIRONMENT });
      if (!started.ok) break;
      open.push(started.value);
    }
    const refused = await guest().link.spawn({ argv: ['cat'], cwd: '/', environment: ENVIRONMENT });
    expect(refused).toMatchObject({ ok: false, failure: { reason: 'limit' } });
    await Promise.all(open.map((channel) => channel.release(PATIENCE_MS)));
    expect((await bash(guest(), 'echo room')).stdout).toBe('room\n');
  });

  it('believes no end of a program that another one forges through /proc (K6)', async () => {
    const forge = `
import os, struct, time
exits = [struct.pack("@IIIiiiiIQ", slot, generation, 3, 0, 0, 99, 0, 0, 0) for generation in range(200) for slot in range(64)]
for fd in os.listdir("/proc/1/fd"):
  if int(fd) < 3: continue
  try: pipe = os.open(f"/proc/1/fd/{fd}", os.O_WRONLY | os.O_NONBLOCK)
  except OSError: continue
  patience = 100
  for at in range(0, len(exits), 100):
    while patience > 0:
      try: os.write(pipe, b"".join(exits[at : at + 100]))
      except BlockingIOError: patience -= 1; time.sleep(0.001)
      except OSError: patience = 0
      else: break
`;
    expect(await bash(guest(), `python3 -c '${forge}' 2>/dev/null; sleep 0.1; exit 7`)).toMatchObject({
      exitCode: 7,
      signal: null,
    });
    expect((await bash(guest(), 'echo others go on')).stdout).toBe('others go on\n');
  });
}
