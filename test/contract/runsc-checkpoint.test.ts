/** Checkpoints on real gVisor: what a sandbox is goes on in another one, of another host, and nothing is lost or doubled. */
import { mkdir, mkdtemp, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as wait } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import * as z from 'zod';
import { SILENT_LOG } from '../../host-agent/logging/log.ts';
import { CarriedSandboxSchema } from '../../host-agent/sandbox/checkpoint/carried.ts';
import type { OutputSink, RunningExecution, Sandbox } from '../../host-agent/sandbox/port.ts';
import type { Program } from '../../host-agent/sandbox/programs/port.ts';
import { RunscSandboxes } from '../../host-agent/sandbox/runsc-sandboxes.ts';
import { setUp } from '../../host-agent/setup/setup.ts';
import { silentProgress } from '../../host-agent/setup/step.ts';
import { locations } from '../../scripts/locations.ts';
import type { ToolName } from '../../shared/tool.ts';
import { until } from '../e2e/until.ts';
import { file, LIMITS, newSandboxId, python, shell } from './subject.ts';

const GIB = 1024 ** 3;
const SET_UP_TIMEOUT_MS = 600_000;
const TEST_TIMEOUT_MS = 180_000;
const CALL_TIMEOUT_MS = 60_000;
/** How long nothing of a sandbox is there, and by how much its clocks may be wrong afterwards. */
const STAND_S = 4;
const CLOCK_TOLERANCE_S = 2;
/** What gVisor writes down of one process, at least. */
const ROOM_OF_A_PROCESS_BYTES = 80_000;

let directory: string;
let imageDigest: string;
const hosts: RunscSandboxes[] = [];
let images = 0;

beforeAll(async () => {
  const installation = await setUp(locations(process.env), process.env, silentProgress);
  imageDigest = installation.image.digest;
  directory = await mkdtemp(join(tmpdir(), 'sandgate-checkpoint-'));
  const { runscPath, imagesDir, guestDir } = installation;
  for (const name of ['a', 'b']) {
    const opened = await RunscSandboxes.open({
      runscPath,
      imagesDir,
      guestDir,
      stateDir: join(directory, name),
      cgroupParent: `/sandgate-checkpoint-${name}-${process.pid}`,
      capacity: 8,
      caps: { cpus: 2, memory_bytes: GIB, processes: 256, workspace_bytes: GIB, tmp_bytes: GIB },
      log: SILENT_LOG,
    });
    if (!opened.ok) throw new Error(opened.detail);
    hosts.push(opened.value);
  }
}, SET_UP_TIMEOUT_MS);

afterAll(async () => {
  await Promise.all(hosts.map((host) => host.stop()));
  await rm(directory, { recursive: true, force: true });
});

function host(index: number): RunscSandboxes {
  const found = hosts[index];
  if (found === undefined) throw new Error(`there is no host ${index}`);
  return found;
}

const config = () => ({
  sandboxId: newSandboxId(),
  imageDigest,
  limits: LIMITS,
  environment: { GREETING: 'hello' },
});

async function start(): Promise<Sandbox> {
  const started = await host(0).start(config());
  if (!started.ok) throw new Error(started.detail);
  return started.value;
}

async function emptyFolder(): Promise<string> {
  images += 1;
  const folder = join(directory, `image-${images}`);
  await mkdir(folder);
  return folder;
}

async function checkpoint(sandbox: Sandbox, imageDir?: string) {
  const folder = imageDir ?? (await emptyFolder());
  const taken = await sandbox.checkpoint?.(folder);
  if (taken?.ok !== true) throw new Error(taken?.detail ?? 'no checkpoints here');
  return { ...taken.value, imageDir: folder };
}

/** As the state arrives on another host. */
function received(state: unknown) {
  return CarriedSandboxSchema.parse(JSON.parse(JSON.stringify(state)));
}

async function restore(
  on: number,
  from: { imageDir: string; state: unknown },
  generation: number,
  sink: OutputSink,
  isCopy = false,
) {
  const restored = await host(on).restore(config(), {
    imageDir: from.imageDir,
    state: received(from.state),
    generation,
    isCopy,
    sinkOf: () => sink,
  });
  if (!restored.ok) throw new Error(`${restored.code}: ${restored.detail}`);
  restored.value.goOn();
  return restored.value;
}

const noOutput: OutputSink = async () => {
  throw new Error('nothing ran');
};

async function moved(sandbox: Sandbox, on: number, generation = 1): Promise<Sandbox> {
  const taken = await checkpoint(sandbox);
  await taken.end();
  const { sandbox: next, calls } = await restore(on, taken, generation, noOutput);
  expect(calls).toEqual([]);
  return next;
}

/** A call whose output is followed wherever it goes on. */
class Call {
  readonly chunks: { stream: string; bytes: Uint8Array }[] = [];
  running: RunningExecution | undefined;

  readonly sink: OutputSink = async (stream, bytes) => {
    this.chunks.push({ stream, bytes });
  };

  begin(sandbox: Sandbox, tool: ToolName, toolArguments: unknown): void {
    this.running = sandbox.execute(
      {
        executionId: 'exe_0000000000000000000000',
        tool,
        arguments: toolArguments,
        timeoutMs: CALL_TIMEOUT_MS,
      },
      this.sink,
    );
  }

  get text(): string {
    return Buffer.concat(this.chunks.map(({ bytes }) => bytes)).toString('utf8');
  }

  get lines(): string[] {
    return this.text.split('\n').filter((line) => line !== '');
  }

  async printed(count: number): Promise<void> {
    await until(`${count} lines`, CALL_TIMEOUT_MS, () => (this.lines.length >= count ? true : undefined));
  }

  async move(sandbox: Sandbox, on: number, generation: number): Promise<Sandbox> {
    const taken = await checkpoint(sandbox);
    await taken.end();
    const next = await restore(on, taken, generation, this.sink);
    this.running = next.calls[0]?.execution;
    return next.sandbox;
  }
}

const numbers = (count: number): string[] => Array.from({ length: count }, (_, index) => String(index));

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

/** Sources of random values by name, each as an expression of Python. */
const RANDOM_VALUES = {
  'os.urandom': 'os.urandom(16).hex()',
  'random.random': 'random.random()',
  'uuid.uuid4': 'uuid.uuid4().hex',
  'secrets.token_hex': 'secrets.token_hex(16)',
  'tempfile.mktemp': 'tempfile.mktemp()',
  'ssl.RAND_bytes': 'ssl.RAND_bytes(16).hex()',
};

/** One value of each kind. */
async function drawn(sandbox: Sandbox): Promise<Record<string, string>> {
  const values = Object.entries(RANDOM_VALUES).map(([kind, expression]) => `'${kind}': str(${expression})`);
  const imports = 'import json, os, random, secrets, ssl, tempfile, uuid';
  const { stdout, error } = await python(sandbox, `${imports}\nprint(json.dumps({${values.join()}}))`);
  expect(error).toBeNull();
  return z.record(z.string(), z.string()).parse(JSON.parse(stdout));
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
client.sendall(b'and half'); received = peer.recv(4); count = len(ticks); time.sleep(0.1); deleted.seek(0)
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
        'echo $PWD $COLOUR; a=$(wc -l </tmp/beat); sleep 0.5; [ $(wc -l </tmp/beat) -gt $a ] && echo alive',
      );
      expect(inShell.stdout).toBe('/tmp green\nalive\n');
      expect(inShell.stateLost).toBe(false);
      machineIds.push((await shell(sandbox, 'cat /etc/machine-id')).stdout);
    }
    for (const machineId of machineIds) expect(machineId).toMatch(/^[0-9a-f]{32}\n$/);
    expect(new Set(machineIds).size).toBe(4);
    await sandbox.destroy();
  });

  it('takes no more room for programs that have ended, however often it went on', {
    timeout: TEST_TIMEOUT_MS,
  }, async () => {
    let sandbox = await start();
    const sizes: number[] = [];
    const servers = async (): Promise<string> =>
      (await shell(sandbox, 'grep -lx files /proc/[0-9]*/comm')).stdout;
    await file(sandbox, { operation: 'list', path: '.' });
    const server = await servers();
    for (let round = 1; round <= 6; round += 1) {
      await shell(sandbox, 'true');
      await file(sandbox, { operation: 'list', path: '.' });
      const taken = await checkpoint(sandbox);
      await taken.end();
      sizes.push((await stat(join(taken.imageDir, 'checkpoint.img'))).size);
      sandbox = (await restore(1, taken, round, noOutput)).sandbox;
    }
    const [, first = Number.NaN] = sizes;
    expect(sizes.at(-1)).toBeLessThan(first + ROOM_OF_A_PROCESS_BYTES);
    expect(server).not.toBe('');
    expect(await servers()).toBe(server);
    await sandbox.destroy();
  });

  it('takes no more room for programs that looked into /proc, once they have ended', {
    timeout: TEST_TIMEOUT_MS,
  }, async () => {
    const sandbox = await start();
    const first = await checkpoint(sandbox);
    await first.goOn();
    await shell(sandbox, 'for i in $(seq 200); do ls -l /proc/self/fd; cat /proc/self/stat; done >/dev/null');
    const second = await checkpoint(sandbox);
    await second.goOn();
    const size = async ({ imageDir }: { imageDir: string }): Promise<number> =>
      (await stat(join(imageDir, 'checkpoint.img'))).size;
    const [sizeBefore, sizeAfter] = [await size(first), await size(second)];
    expect(sizeAfter).toBeLessThan(sizeBefore + 10 * ROOM_OF_A_PROCESS_BYTES);
    await sandbox.destroy();
  });

  it('goes on with a python cell that runs, without a line lost or told twice', {
    timeout: TEST_TIMEOUT_MS,
  }, async () => {
    let sandbox = await start();
    const call = new Call();
    await python(sandbox, 'ballast = bytearray(8_000_000); total = 0');
    call.begin(sandbox, 'python', {
      code: 'import time\nfor number in range(400):\n    print(number); total += number; time.sleep(0.01)\ntotal',
    });
    for (const [round, on] of [1, 0].entries()) {
      await call.printed(50 + 80 * round);
      sandbox = await call.move(sandbox, on, round + 1);
    }
    const outcome = await call.running?.finished;
    expect(outcome).toMatchObject({ status: 'succeeded', value: String((399 * 400) / 2), stateLost: false });
    expect(outcome?.usage.cpuMs).toBeGreaterThan(0);
    expect(call.lines).toEqual(numbers(400));
    expect((await python(sandbox, 'total, len(ballast)')).value).toBe('(79800, 8000000)');
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

  it('R44: differs from its copies in each kind of random value, and in what it is', {
    timeout: TEST_TIMEOUT_MS,
  }, async () => {
    const sandbox = await start();
    // Each source has drawn before, so that it has a state which the copies could share.
    await drawn(sandbox);
    const taken = await checkpoint(sandbox);
    const copies = await Promise.all([
      restore(0, taken, 1, noOutput, true),
      restore(1, taken, 2, noOutput, true),
    ]);
    await taken.goOn();
    const all = [sandbox, ...copies.map((copy) => copy.sandbox)];
    const values = await Promise.all(all.map(drawn));
    for (const kind of Object.keys(RANDOM_VALUES)) {
      expect(new Set(values.map((value) => value[kind])).size, kind).toBe(all.length);
    }
    const identities = await Promise.all(all.map((one) => shell(one, 'cat /run/sandgate/sandbox_id')));
    expect(identities.map(({ stdout }) => stdout)).toEqual(all.map(({ id }) => `${id}\n`));
    await Promise.all(all.map((one) => one.destroy()));
  });

  it('R44: draws on from its own seed where it was copied, and its copies do not', {
    timeout: TEST_TIMEOUT_MS,
  }, async () => {
    const sandbox = await start();
    await python(sandbox, 'import random; random.seed(1); common = random.random()');
    const taken = await checkpoint(sandbox);
    const copy = await restore(1, taken, 1, noOutput, true);
    await taken.goOn();
    const draw = '(common, random.random())';
    expect((await python(sandbox, draw)).value).toBe('(0.13436424411240122, 0.8474337369372327)');
    const inCopy = (await python(copy.sandbox, draw)).value;
    expect(inCopy).toMatch(/^\(0\.13436424411240122, /);
    expect(inCopy).not.toContain('0.8474337369372327');
    await Promise.all([sandbox, copy.sandbox].map((one) => one.destroy()));
  });

  it('shares its hash seed with its copies, whose dictionaries are made by it, and with no other sandbox', {
    timeout: TEST_TIMEOUT_MS,
  }, async () => {
    const [sandbox, other] = [await start(), await start()];
    await python(sandbox, 'held = {str(number): number for number in range(1000)}');
    const taken = await checkpoint(sandbox);
    const copy = await restore(1, taken, 1, noOutput, true);
    await taken.goOn();
    const hashOf = async (one: Sandbox): Promise<string | null> =>
      (await python(one, "hash('sandgate')")).value;
    const hash = await hashOf(sandbox);
    expect(hash).toMatch(/^-?\d+$/);
    expect(await hashOf(copy.sandbox)).toBe(hash);
    expect((await python(copy.sandbox, 'sum(held[str(number)] for number in range(1000))')).value).toBe(
      '499500',
    );
    expect(await hashOf(other)).not.toBe(hash);
    await Promise.all([sandbox, copy.sandbox, other].map((one) => one.destroy()));
  });

  it('keeps the seed that it was given where it only moves, and draws anew from the kernel', {
    timeout: TEST_TIMEOUT_MS,
  }, async () => {
    const sandbox = await start();
    await python(sandbox, 'import os, random; random.seed(42); numbers = [random.random()]; os.urandom(8)');
    const taken = await checkpoint(sandbox);
    const next = (await restore(1, taken, 1, noOutput)).sandbox;
    await taken.goOn();
    const numbers = 'numbers.append(random.random()); numbers';
    expect((await python(next, numbers)).value).toBe('[0.6394267984578837, 0.025010755222666936]');
    // The next draw of both, from one state: what is equal here would have been in the checkpoint.
    const [here, there] = await Promise.all(
      [sandbox, next].map(async (one) => (await python(one, 'os.urandom(8).hex()')).value),
    );
    expect(here).toMatch(/^'[0-9a-f]{16}'$/);
    expect(there).toMatch(/^'[0-9a-f]{16}'$/);
    expect(there).not.toBe(here);
    await Promise.all([sandbox, next].map((one) => one.destroy()));
  });

  it('has the clock of its host from the first moment on, and its monotonic clock has gone on by as much', {
    timeout: TEST_TIMEOUT_MS,
  }, async () => {
    const sandbox = await start();
    await python(sandbox, 'import time; wall, monotonic = time.time(), time.monotonic()');
    const taken = await checkpoint(sandbox);
    await taken.end();
    // Nothing is waited for here: time has to go by for a clock to be behind.
    await wait(STAND_S * 1_000);
    const notBeforeS = Date.now() / 1_000;
    const next = (await restore(1, taken, 1, noOutput)).sandbox;
    const { stdout, error } = await python(
      next,
      'now = time.time(), time.monotonic()\nprint(now[0], now[0] - wall, now[1] - monotonic)',
    );
    const notAfterS = Date.now() / 1_000;
    expect(error).toBeNull();
    const [nowS = Number.NaN, wallS = Number.NaN, monotonicS = Number.NaN] = stdout.split(' ').map(Number);
    expect(nowS).toBeGreaterThan(notBeforeS - CLOCK_TOLERANCE_S);
    expect(nowS).toBeLessThan(notAfterS + CLOCK_TOLERANCE_S);
    expect(monotonicS).toBeGreaterThan(STAND_S - CLOCK_TOLERANCE_S);
    expect(Math.abs(monotonicS - wallS)).toBeLessThan(CLOCK_TOLERANCE_S);
    await next.destroy();
  });

  it('stands still from its checkpoint on, and goes on where it was', {
    timeout: TEST_TIMEOUT_MS,
  }, async () => {
    const sandbox = await start();
    const call = new Call();
    call.begin(sandbox, 'shell', { command: 'for i in $(seq 0 199); do echo $i; sleep 0.01; done' });
    await call.printed(20);
    const taken = await checkpoint(sandbox);
    const { length } = call.lines;
    expect(taken.state.calls[0]?.timeout_left_ms).toBeLessThan(CALL_TIMEOUT_MS);
    await taken.goOn();
    expect(await call.running?.finished).toMatchObject({ status: 'succeeded' });
    expect(length).toBeLessThan(200);
    expect(call.lines).toEqual(numbers(200));
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

  it('is kept to its limits of memory and processes', { timeout: TEST_TIMEOUT_MS }, async () => {
    const sandbox = await moved(await start(), 1);
    const threads = await python(
      sandbox,
      `
import threading
over = threading.Event(); count = 0
try:
    while count < 1000: threading.Thread(target=over.wait).start(); count += 1
except RuntimeError: pass
over.set(); count`,
    );
    expect(threads.error).toBeNull();
    expect(Number(threads.value)).toBeLessThan(400);
    const filled = await python(
      sandbox,
      'x = bytearray(2_000_000_000)\nfor i in range(0, len(x), 4096): x[i] = 1',
    );
    expect(filled.status).toBe('oom');
    await sandbox.destroy();
  });
});
