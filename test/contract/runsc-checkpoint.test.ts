/** Checkpoints on real gVisor: what a sandbox is goes on in another one, of another host, and nothing is lost or doubled. */
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import type { Program } from '../../host-agent/sandbox/programs/port.ts';
import { until } from '../e2e/until.ts';
import {
  CALL_TIMEOUT_MS,
  Call,
  checkpoint,
  emptyFolder,
  moved,
  noOutput,
  numbers,
  restore,
  start,
  TEST_TIMEOUT_MS,
  useCheckpointHosts,
} from './checkpoint-hosts.ts';
import { python, shell } from './subject.ts';

useCheckpointHosts();

/** So many that a call still runs when a busy machine has taken its checkpoints. */
const NUMBERS = 1_000;
const SUM = (NUMBERS * (NUMBERS - 1)) / 2;

/** All that is kept of it so far. */
async function writtenBy(program: Program): Promise<string> {
  const pieces: Uint8Array[] = [];
  const enough = new AbortController();
  const { endOffset } = program;
  if (endOffset === 0) return '';
  for await (const piece of program.follow(0, enough.signal)) {
    if ('gap' in piece) continue;
    pieces.push(piece.bytes);
    if (piece.offset + piece.bytes.length >= endOffset) break;
  }
  return Buffer.concat(pieces).toString('utf8');
}

describe('a sandbox that goes on from its checkpoint', () => {
  it('has its variables, files, open files, threads, sockets and processes, on another host and back', {
    timeout: TEST_TIMEOUT_MS,
  }, async () => {
    let sandbox = await start();
    const before = await python(
      sandbox,
      `
import os, socket, subprocess, threading, time
secret = {'answer': 42}
open('/workspace/kept.txt', 'w').write('in the workspace')
open('/tmp/kept.txt', 'w').write('in tmp')
deleted = open('/tmp/deleted', 'w+'); deleted.write('still here'); deleted.flush(); os.unlink('/tmp/deleted')
server = socket.create_server(('127.0.0.1', 4040))
client = socket.create_connection(('127.0.0.1', 4040)); peer, _ = server.accept()
client.sendall(b'half')
ticks = []
def tick():
    while True:
        ticks.append(time.monotonic()); time.sleep(0.01)
threading.Thread(target=tick, daemon=True).start()
child = subprocess.Popen(['sleep', '1000'])
open('/run/sandgate/generation').read(), open('/run/sandgate/sandbox_id').read()
`,
    );
    const machineIds = [(await shell(sandbox, 'cat /etc/machine-id')).stdout];
    expect(before.error).toBeNull();
    expect(before.value).toBe(`('0\\n', '${sandbox.id}\\n')`);
    await shell(
      sandbox,
      'cd /tmp; export COLOUR=green; (while :; do date +%s%N >>/tmp/beat; sleep 0.05; done) &',
    );
    for (const [round, on] of [1, 0, 1].entries()) {
      sandbox = await moved(sandbox, on, round + 1);
      const after = await python(
        sandbox,
        `
client.sendall(b'and half'); received = peer.recv(4); count = len(ticks); deleted.seek(0)
while len(ticks) == count: time.sleep(0.01)
received += peer.recv(100)
client.sendall(b'half')
(secret['answer'], open('/workspace/kept.txt').read(), open('/tmp/kept.txt').read(), deleted.read(), received,
 len(ticks) > count, child.poll(), open('/run/sandgate/generation').read(), open('/run/sandgate/sandbox_id').read())
`,
      );
      expect(after.error).toBeNull();
      expect(after.value).toBe(
        `(42, 'in the workspace', 'in tmp', 'still here', b'halfand half', True, None, '${round + 1}\\n', '${sandbox.id}\\n')`,
      );
      const inShell = await shell(
        sandbox,
        'echo $PWD $COLOUR; a=$(wc -l </tmp/beat); until [ $(wc -l </tmp/beat) -gt $a ]; do sleep 0.1; done; echo alive',
      );
      expect(inShell.stdout).toBe('/tmp green\nalive\n');
      expect(inShell.stateLost).toBe(false);
      machineIds.push((await shell(sandbox, 'cat /etc/machine-id')).stdout);
    }
    for (const machineId of machineIds) expect(machineId).toMatch(/^[0-9a-f]{32}\n$/);
    expect(new Set(machineIds).size).toBe(4);
    await sandbox.destroy();
  });

  it('goes on with a python cell that runs, without a line lost or told twice', {
    timeout: TEST_TIMEOUT_MS,
  }, async () => {
    let sandbox = await start();
    const call = new Call();
    await python(sandbox, 'ballast = bytearray(8_000_000); total = 0');
    call.begin(sandbox, 'python', {
      code: `import time\nfor number in range(${NUMBERS}):\n    print(number); total += number; time.sleep(0.01)\ntotal`,
    });
    for (const [round, on] of [1, 0].entries()) {
      await call.printed(50 + 80 * round);
      sandbox = await call.move(sandbox, on, round + 1);
    }
    const outcome = await call.running?.finished;
    expect(outcome).toMatchObject({ status: 'succeeded', value: String(SUM), stateLost: false });
    expect(outcome?.usage.cpuMs).toBeGreaterThan(0);
    expect(call.lines).toEqual(numbers(NUMBERS));
    expect((await python(sandbox, 'total, len(ballast)')).value).toBe(`(${SUM}, 8000000)`);
    await sandbox.destroy();
  });

  it('goes on with a shell command that runs: its input, its output and what it leaves', {
    timeout: TEST_TIMEOUT_MS,
  }, async () => {
    const sandbox = await start();
    const call = new Call();
    call.begin(sandbox, 'shell', {
      command:
        'read -r first; echo $first; cd /tmp; export LEFT=behind; read -r second; echo $second; cat; exit 3',
    });
    expect(await call.running?.writeStdin(Buffer.from('one\nt'), false)).toMatchObject({ ok: true });
    await call.printed(1);
    const next = await call.move(sandbox, 1, 1);
    expect(await call.running?.writeStdin(Buffer.from('wo\nthree\n'), true)).toMatchObject({ ok: true });
    expect(await call.running?.finished).toMatchObject({ status: 'failed', exitCode: 3, stateLost: false });
    expect(call.lines).toEqual(['one', 'two', 'three']);
    expect((await shell(next, 'echo $PWD $LEFT')).stdout).toBe('/tmp behind\n');
    await next.destroy();
  });

  it('has its terminals and background processes, with what they wrote', {
    timeout: TEST_TIMEOUT_MS,
  }, async () => {
    const sandbox = await start();
    const command = 'for i in $(seq 0 199); do echo $i; sleep 0.02; done; exit 4';
    const process = await sandbox.programs.startProcess('prc_1', { command, cwd: null, environment: {} });
    const terminal = await sandbox.programs.openTerminal('trm_1', { rows: 24, cols: 80 });
    if (!process.ok || !terminal.ok) throw new Error('they did not start');
    await terminal.value.write(Buffer.from('export KEPT=in-the-terminal; echo be""gun\n'));
    const wrote = async (program: Program, text: string): Promise<true | undefined> =>
      (await writtenBy(program)).includes(text) ? true : undefined;
    await until('the terminal answers', CALL_TIMEOUT_MS, () => wrote(terminal.value, 'begun'));
    await until('the process writes', CALL_TIMEOUT_MS, () => wrote(process.value, '\n20\n'));
    const next = await moved(sandbox, 1);
    const processThere = next.programs.process('prc_1');
    const terminalThere = next.programs.terminal('trm_1');
    if (!processThere.ok || !terminalThere.ok) throw new Error('they are not there');
    expect(await writtenBy(terminalThere.value)).toContain('begun');
    await terminalThere.value.write(Buffer.from('echo "<$KEPT>"; exit 5\n'));
    expect(await terminalThere.value.ended).toMatchObject({ exitCode: 5 });
    expect(await writtenBy(terminalThere.value)).toContain('<in-the-terminal>\r\n');
    expect(await processThere.value.ended).toMatchObject({ exitCode: 4 });
    expect(await writtenBy(processThere.value)).toBe(
      numbers(200)
        .map((line) => `${line}\n`)
        .join(''),
    );
    await next.destroy();
  });

  it('can interrupt what goes on, and keeps its deadline', { timeout: TEST_TIMEOUT_MS }, async () => {
    const sandbox = await start();
    const call = new Call();
    call.begin(sandbox, 'python', {
      code: 'import time\nkept = 7\nprint("runs")\nwhile True: time.sleep(0.01)',
    });
    await call.printed(1);
    const next = await call.move(sandbox, 1, 1);
    call.running?.interrupt();
    expect(await call.running?.finished).toMatchObject({ status: 'interrupted', stateLost: false });
    expect((await python(next, 'kept')).value).toBe('7');
    await next.destroy();
  });

  it('never tells a program that runs on that it is what it was before', {
    timeout: TEST_TIMEOUT_MS,
  }, async () => {
    let sandbox = await start();
    await shell(
      sandbox,
      '(while :; do cat /run/sandgate/generation 2>/dev/null || echo none; done >/tmp/seen) & until [ -s /tmp/seen ]; do sleep 0.1; done',
    );
    sandbox = await moved(sandbox, 1, 7);
    const seen = await shell(
      sandbox,
      'until tail -n 1 /tmp/seen | grep -q 7; do sleep 0.1; done; uniq /tmp/seen | head -c 1000',
    );
    expect(seen.stdout).toMatch(/^0\n(none\n)?7\n$/);
    await sandbox.destroy();
  });

  it('does not go on where its image was built of other files', { timeout: TEST_TIMEOUT_MS }, async () => {
    const sandbox = await start();
    const taken = await checkpoint(sandbox);
    const { state, imageDir } = taken;
    for (const root of ['0'.repeat(32), undefined]) {
      await expect(restore(1, { imageDir, state: { ...state, root } }, 1, noOutput)).rejects.toThrow(
        /^snapshot_mismatch: /,
      );
    }
    await taken.goOn();
    expect((await python(sandbox, '1 + 1')).value).toBe('2');
    await sandbox.destroy();
  });

  it('stands still from its checkpoint on, and goes on where it was', {
    timeout: TEST_TIMEOUT_MS,
  }, async () => {
    const sandbox = await start();
    const call = new Call();
    call.begin(sandbox, 'shell', {
      command: `for i in $(seq 0 ${NUMBERS - 1}); do echo $i; sleep 0.01; done`,
    });
    await call.printed(20);
    const taken = await checkpoint(sandbox);
    const { length } = call.lines;
    expect(taken.state.calls[0]?.timeout_left_ms).toBeLessThan(CALL_TIMEOUT_MS);
    await taken.goOn();
    expect(await call.running?.finished).toMatchObject({ status: 'succeeded' });
    expect(length).toBeLessThan(NUMBERS);
    expect(call.lines).toEqual(numbers(NUMBERS));
    await sandbox.destroy();
  });

  it('goes on as it was where its checkpoint fails', { timeout: TEST_TIMEOUT_MS }, async () => {
    const sandbox = await start();
    const call = new Call();
    call.begin(sandbox, 'python', {
      code: 'import time\nfor number in range(100): print(number); time.sleep(0.01)',
    });
    await call.printed(10);
    const folder = await emptyFolder();
    await writeFile(join(folder, 'checkpoint.img'), 'in the way');
    expect(await sandbox.checkpoint?.(folder)).toMatchObject({ ok: false, code: 'suspend_failed' });
    expect(await call.running?.finished).toMatchObject({ status: 'succeeded' });
    expect(call.lines).toEqual(numbers(100));
    await sandbox.destroy();
  });
});
