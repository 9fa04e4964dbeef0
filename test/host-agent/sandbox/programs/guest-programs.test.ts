/** Terminals and background processes on a real supervisor, as a process of this machine. */
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { GuestPrograms } from '../../../../host-agent/sandbox/programs/guest-programs.ts';
import type { Piece } from '../../../../host-agent/sandbox/programs/output-ring.ts';
import type { Gap, Program, Terminal } from '../../../../host-agent/sandbox/programs/port.ts';
import type { Outcome } from '../../../../shared/errors.ts';
import { MAX_PROCESSES, MAX_TERMINALS } from '../../../../shared/program.ts';
import { ENVIRONMENT, eventually, type GuestUnderTest } from '../../guest/guest-under-test.ts';
import { startPlain } from '../../guest/plain-supervisor.ts';

const SIZE = { rows: 24, cols: 80 };

let guest: GuestUnderTest;
beforeAll(async () => {
  guest = await startPlain();
});
afterAll(() => guest.stop());

function programsOf(detachedMs?: number): GuestPrograms {
  return new GuestPrograms({
    link: guest.link,
    place: { cwd: guest.work, environment: ENVIRONMENT },
    terminalProgram: join(guest.programs, 'terminal'),
    ...(detachedMs === undefined ? {} : { detachedMs }),
  });
}

function must<T>(outcome: Outcome<T>): T {
  if (!outcome.ok) throw new Error(`${outcome.code}: ${outcome.detail}`);
  return outcome.value;
}

/** Reads along from a position. */
function reader(program: Program, after = 0) {
  const seen: (Piece | Gap)[] = [];
  const abort = new AbortController();
  const done = (async () => {
    for await (const item of program.follow(after, abort.signal)) seen.push(item);
  })();
  const text = (): string =>
    seen.map((item) => ('gap' in item ? '[gap]' : Buffer.from(item.bytes).toString())).join('');
  const shows = (wanted: string): Promise<void> => eventually(wanted, () => text().includes(wanted));
  return { text, shows, stop: () => abort.abort(), done };
}

const type = (terminal: Terminal, text: string) => terminal.write(Buffer.from(text));

test('a terminal ends by itself when nobody was attached for so long, and not while somebody is', async () => {
  const programs = programsOf(300);
  const terminal = must(await programs.openTerminal('trm_detached', SIZE));
  const detach = terminal.attach();
  const output = reader(terminal);
  await type(terminal, "sleep 0.6; echo st''ill\n");
  await output.shows('still');
  expect(terminal.end).toBeUndefined();
  output.stop();
  detach();
  expect(await terminal.ended).toMatchObject({ exitCode: null, signal: 'SIGKILL' });
  expect(programs.terminal('trm_detached')).toMatchObject({ ok: true });
});

test('a terminal that nobody reads does not hold its program back', async () => {
  const terminal = must(await programsOf().openTerminal('trm_unread', SIZE));
  await type(terminal, "head -c 500000 /dev/zero | tr '\\0' x; exit 4\n");
  expect(await terminal.ended).toMatchObject({ exitCode: 4 });
  const output = reader(terminal);
  await output.done;
  expect(output.text()).toMatch(/^\[gap\]x+/);
});

test('a reader of a terminal that stands still holds its program back, and then misses nothing', async () => {
  const terminal = must(await programsOf().openTerminal('trm_slow', SIZE));
  const iterator = terminal.follow(0, new AbortController().signal)[Symbol.asyncIterator]();
  await iterator.next();
  await type(terminal, "head -c 2000000 /dev/zero | tr '\\0' x; exit\n");
  let before = -1;
  await eventually('nothing more is written', async () => {
    const stands = before === terminal.endOffset && before > 60_000;
    before = terminal.endOffset;
    await new Promise((resolve) => setTimeout(resolve, 100));
    return stands;
  });
  expect(terminal.endOffset).toBeLessThan(300_000);
  let bytes = 0;
  for (let next = await iterator.next(); !next.done; next = await iterator.next()) {
    if ('gap' in next.value) throw new Error('a gap');
    bytes += next.value.bytes.length;
  }
  expect(bytes).toBeGreaterThan(2_000_000);
});

test('a terminal that was stopped takes the size that was told last, however many were told', async () => {
  const terminal = must(await programsOf().openTerminal('trm_stopped', SIZE));
  const output = reader(terminal);
  process.kill(terminal.pid, 'SIGSTOP');
  for (let told = 0; told < 20_000; told += 1) terminal.resize({ rows: 30, cols: 20 + (told % 100) });
  terminal.resize({ rows: 51, cols: 103 });
  process.kill(terminal.pid, 'SIGCONT');
  const asked = `until [ "$(stty size)" = '51 103' ]; do sleep 0.05; done; echo si''zed; exit\n`;
  await type(terminal, asked);
  await output.shows('sized');
  await output.done;
});

test('a signal passes input that nobody reads', async () => {
  const terminal = must(await programsOf().openTerminal('trm_signal', SIZE));
  const output = reader(terminal);
  await type(terminal, "stty -icanon; echo be''gan; sleep 1000; echo en''ded\n");
  await output.shows('began');
  for (let count = 0; count < 3; count += 1) await type(terminal, 'y'.repeat(60_000));
  terminal.signal('SIGTERM');
  await output.shows('Terminated');
  output.stop();
  await terminal.stop(0);
});

test('the exit of a terminal is exact, by a signal too, and what it left behind ends with it', async () => {
  const terminal = must(await programsOf().openTerminal('trm_exit', SIZE));
  const output = reader(terminal);
  await type(terminal, 'setsid sleep 987654 & kill -KILL $$\n');
  expect(await terminal.ended).toMatchObject({ exitCode: null, signal: 'SIGKILL' });
  await output.done;
  const programs = programsOf();
  await eventually('the rest has ended', async () => {
    const look = must(
      await programs.startProcess(`prc_${performance.now()}`, {
        command: 'pgrep -f "sleep 98765[4]"',
        cwd: null,
        environment: {},
      }),
    );
    return (await look.ended).exitCode === 1;
  });
});

test('characters of a log are never cut, and what is no text is kept as it is', async () => {
  const process = must(
    await programsOf().startProcess('prc_text', {
      command: "printf 'gr\\303'; sleep 0.2; printf '\\274n'; sleep 0.1; printf '\\377'",
      cwd: null,
      environment: {},
    }),
  );
  const output = reader(process);
  await process.ended;
  await output.done;
  expect(Buffer.from(output.text()).toString()).toBe('grün\ufffd');
});

test('terminals and processes are bounded in number, and what has left something behind takes its place', async () => {
  const programs = programsOf();
  const terminals: Terminal[] = [];
  for (let count = 0; count < MAX_TERMINALS; count += 1)
    terminals.push(must(await programs.openTerminal(`trm_${count}`, SIZE)));
  expect(await programs.openTerminal('trm_more', SIZE)).toMatchObject({ code: 'too_many_programs' });
  const processes: Program[] = [];
  const request = { command: 'sleep 1000 & exit 0', cwd: null, environment: {} };
  for (let count = 0; count < MAX_PROCESSES; count += 1)
    processes.push(must(await programs.startProcess(`prc_${count}`, request)));
  await Promise.all(processes.map(({ ended }) => ended));
  expect(await programs.startProcess('prc_more', request)).toMatchObject({ code: 'too_many_programs' });
  await Promise.all([...terminals, ...processes].map((program) => program.stop(0)));
  const again = must(await programs.startProcess('prc_again', request));
  expect(await again.ended).toMatchObject({ exitCode: 0 });
  await again.stop(0);
});

test('a background process takes input where that was asked for, until its end', async () => {
  const programs = programsOf();
  const start = async (id: string, stdin: boolean) =>
    must(await programs.startProcess(id, { command: 'bash', cwd: null, environment: {}, stdin }));
  const shell = await start('prc_shell', true);
  const output = reader(shell);
  expect(shell.inputAt).toBeUndefined();
  must(await shell.input(Buffer.from("kept=4; echo fir''st\n"), false));
  await output.shows('first\n');
  expect(shell.inputAt).toBe(0);
  must(await shell.input(Buffer.from('exit $kept'), true));
  expect(shell.inputAt).toBe('first\n'.length);
  expect(await shell.input(Buffer.from('echo more\n'), false)).toMatchObject({
    code: 'execution_not_running',
  });
  expect(await shell.ended).toMatchObject({ exitCode: 4 });
  expect(await shell.input(Buffer.from('x'), false)).toMatchObject({ code: 'execution_not_running' });
  const closed = must(
    await programs.startProcess('prc_closed', { command: 'sleep 1000', cwd: null, environment: {} }),
  );
  expect(await closed.input(Buffer.from('x'), false)).toMatchObject({
    code: 'execution_not_running',
    detail: expect.stringContaining('closed'),
  });
  await closed.stop(0);
});

test('what cannot be started says why', async () => {
  const request = { command: 'true', cwd: '/nowhere', environment: {} };
  expect(await programsOf().startProcess('prc_nowhere', request)).toMatchObject({
    code: 'program_not_started',
    detail: expect.stringContaining('ENOENT'),
  });
});

test('a process with pipes is written to, waits for its reader, and ends when it is stopped', async () => {
  const programs = programsOf();
  const script = 'while read -r line; do echo "got $line"; echo "saw $line" >&2; done';
  const process = must(
    await programs.openPipe('prc_pipe', {
      argv: ['bash', '-c', script],
      cwd: null,
      environment: { COLOUR: 'red' },
    }),
  );
  const output = reader(process);
  await process.write(Buffer.from('one\ntwo '));
  await process.write(Buffer.from('parts\n'));
  await output.shows('got two parts');
  await output.shows('saw two parts');
  expect(programs.processes().map(({ id }) => id)).toContain('prc_pipe');
  output.stop();
  await process.stop(0);
  expect(await process.ended).toMatchObject({ signal: 'SIGKILL' });

  const large = must(
    await programs.openPipe('prc_large', { argv: ['seq', '200000'], cwd: null, environment: {} }),
  );
  const all = reader(large);
  await all.done;
  expect(all.text()).toBe(Array.from({ length: 200_000 }, (_, n) => `${n + 1}\n`).join(''));
  expect(await large.ended).toMatchObject({ exitCode: 0 });
});
