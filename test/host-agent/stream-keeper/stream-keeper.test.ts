/** Streams of a program that outlives whoever started it, and of who comes after. */
import { once } from 'node:events';
import { readdirSync } from 'node:fs';
import { Socket } from 'node:net';
import { buffer } from 'node:stream/consumers';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { killProcess, listProcesses } from '../../../host-agent/process/process-table.ts';
import {
  joinStarted,
  type SpawnedProcess,
  type StandardStreams,
  spawnStarter,
} from '../../../host-agent/process/spawn.ts';
import { StreamKeeper } from '../../../host-agent/stream-keeper/stream-keeper.ts';
import { until } from '../../e2e/until.ts';
import { streamKeeperPath } from '../../fixtures/stream-keeper.ts';
import { PATIENCE_MS } from '../../patience.ts';
import { temporaryFolder } from '../../scripts/temporary-folder.ts';

/** Echoes its input, and ends with it. */
const ECHO = 'process.stderr.write(String(process.pid)); process.stdin.pipe(process.stdout)';
const LONG_BYTES = 3_000_000;
/** Prints many bytes once it is asked to. */
const LONG = `process.stderr.write(String(process.pid)); process.stdin.once("data", () => { process.stdin.pause(); process.stdout.end(Buffer.from(Array.from({ length: ${LONG_BYTES} }, (_, index) => index % 251))); })`;

let directory: string;
let keepers: StreamKeeper[];
let pids: number[];
beforeEach(() => {
  directory = temporaryFolder();
  keepers = [];
  pids = [];
});
afterEach(async () => {
  for (const pid of pids) killProcess(pid);
  for (const keeper of keepers) await keeper.end();
});

function keeperOf({
  program = streamKeeperPath,
  waitS = 60,
}: {
  program?: string;
  waitS?: number;
} = {}): StreamKeeper {
  const keeper = new StreamKeeper({ program, directory, waitS });
  keepers.push(keeper);
  return keeper;
}

async function started(script = ECHO): Promise<SpawnedProcess & { pidOfIt: number }> {
  const starter = [
    'const { spawn } = require("node:child_process");',
    `spawn(process.execPath, ["-e", ${JSON.stringify(script)}], { stdio: "inherit", detached: true }).unref();`,
  ].join('\n');
  const process_ = spawnStarter({ file: process.execPath, argv: ['-e', starter], environment: {} });
  process_.stdout.on('error', () => undefined);
  const [said] = await once(process_.stderr, 'data');
  const pidOfIt = Number(String(said));
  pids.push(pidOfIt);
  return { ...process_, pidOfIt };
}

async function answered({ stdin, stdout }: StandardStreams, line: string): Promise<string> {
  stdin.write(line);
  const [answer] = await once(stdout, 'data');
  return String(answer);
}

/** As the end of this process would: without a word to anybody. */
async function letGo(streams: StandardStreams): Promise<void> {
  const ends = [streams.stdin, streams.stdout, streams.stderr];
  const closed = ends.flatMap((stream) => (stream.closed ? [] : [once(stream, 'close')]));
  for (const stream of ends) stream.destroy();
  await Promise.all(closed);
}

async function keeperProcess(): Promise<number | undefined> {
  const processes = await listProcesses();
  return processes.find(({ argv }) => argv[1] === 'keep' && argv[2]?.startsWith(directory))?.pid;
}

const isOver = (): Promise<true> =>
  until('the keeper is over', PATIENCE_MS, async () =>
    (await keeperProcess()) === undefined ? true : undefined,
  );

describe('streams that are kept', () => {
  it('are used by whoever started the program as before', async () => {
    const program = await started();
    expect(await answered(program, 'first')).toBe('first');
    const keeper = keeperOf();
    expect(await keeper.keep('one', program)).toBe(true);
    expect(await answered(program, 'second')).toBe('second');
    killProcess(program.pidOfIt);
    expect(await program.exited).toMatchObject({ exitCode: null, startFailure: null });
  });

  it('go on at the exact byte with an agent that joins them, and with the next one', async () => {
    const program = await started();
    const first = keeperOf();
    await first.keep('one', program);
    await letGo(program);
    first.leave();
    for (const word of ['second', 'third']) {
      const keeper = keeperOf();
      expect([...(await keeper.names())]).toEqual(['one']);
      const joined = joinStarted(keeper.join('one'));
      joined.stderr.resume();
      expect(await answered(joined, word)).toBe(word);
      await letGo(joined);
      keeper.leave();
    }
  });

  it('carry as much as there is to a slow reader', async () => {
    const program = await started(LONG);
    const keeper = keeperOf();
    await keeper.keep('long', program);
    await letGo(program);
    const joined = joinStarted(keeper.join('long'));
    joined.stderr.resume();
    joined.stdin.write('go');
    const bytes = await buffer(joined.stdout);
    expect(bytes.length).toBe(LONG_BYTES);
    expect(bytes.every((byte, index) => byte === index % 251)).toBe(true);
  });

  it('end for who joined them when the program ends, and nobody can join them then', async () => {
    const program = await started();
    const keeper = keeperOf();
    await keeper.keep('one', program);
    await letGo(program);
    const joined = joinStarted(keeper.join('one'));
    joined.stdout.resume();
    joined.stderr.resume();
    killProcess(program.pidOfIt);
    expect(await joined.exited).toEqual({ exitCode: null, signal: null, startFailure: null });
    const late = joinStarted(keeper.join('one'));
    late.stdout.resume();
    late.stderr.resume();
    await late.exited;
    await until('the keeper has nothing', PATIENCE_MS, async () =>
      (await keeperOf().names()).size === 0 ? true : undefined,
    );
  });
});

describe('the process that keeps streams', () => {
  it('ends with the last program once no agent is there', async () => {
    const program = await started();
    const keeper = keeperOf();
    await keeper.keep('one', program);
    await letGo(program);
    keeper.leave();
    expect(await keeperProcess()).toBeDefined();
    killProcess(program.pidOfIt);
    await isOver();
  });

  it('lets the programs end where no agent comes in time', async () => {
    const program = await started();
    const keeper = keeperOf({ waitS: 0 });
    await keeper.keep('one', program);
    await letGo(program);
    keeper.leave();
    await isOver();
    await until('the program has ended', PATIENCE_MS, async () =>
      (await listProcesses()).some(({ pid }) => pid === program.pidOfIt) ? undefined : true,
    );
  });

  it('ends when an agent says so, whoever started it', async () => {
    await keeperOf().keep('one', await started());
    await keeperOf().end();
    await isOver();
    expect((await keeperOf().names()).size).toBe(0);
    expect(readdirSync(directory)).toEqual([]);
  });

  it('is started anew where somebody killed it', async () => {
    const program = await started();
    const keeper = keeperOf();
    await keeper.keep('one', program);
    killProcess((await keeperProcess()) ?? 0);
    await isOver();
    await until('it is missed, and there again', PATIENCE_MS, async () =>
      (await keeper.keep('one', program)) && (await keeperProcess()) !== undefined ? true : undefined,
    );
    expect([...(await keeperOf().names())]).toEqual(['one']);
    expect(await answered(program, 'word')).toBe('word');
  });

  it('has as many descriptors after programs came and went as before', async () => {
    const keeper = keeperOf();
    await keeper.keep('first', await started());
    const pid = await keeperProcess();
    const descriptors = (): number => readdirSync(`/proc/${pid}/fd`).length;
    const before = descriptors();
    for (const name of ['a', 'b', 'c']) {
      const program = await started();
      program.stdout.resume();
      await keeper.keep(name, program);
      killProcess(program.pidOfIt);
      await program.exited;
    }
    await until('what is over is closed', PATIENCE_MS, () => (descriptors() <= before ? true : undefined));
  });

  it('is not there without its program, and streams that have no descriptor are not kept', async () => {
    const program = await started();
    expect(await keeperOf({ program: '/absent/stream-keeper' }).keep('one', program)).toBe(false);
    const unconnected = new Socket();
    expect(
      await keeperOf().keep('two', { stdin: unconnected, stdout: unconnected, stderr: unconnected }),
    ).toBe(false);
  });
});
