/** The agent's side of the process that keeps the streams of sandboxes while no agent is there. */
import { once } from 'node:events';
import { rm } from 'node:fs/promises';
import { connect, type Socket } from 'node:net';
import { join } from 'node:path';
import { setTimeout as wait } from 'node:timers/promises';
import { type StandardStreams, spawn, spawnSharing } from '../process/spawn.ts';
import { AGENT_ORDER, joinOrder, NameReader } from './orders.ts';

const SOCKET_NAME = 'stream-keeper.sock';
const ANSWER_TIMEOUT_MS = 5_000;
const END_TIMEOUT_MS = 2_000;
const END = Buffer.of(0);

export interface StreamKeeperOptions {
  /** Without it nothing is kept. */
  program: string | undefined;
  /** Of this agent alone; its socket lies there. */
  directory: string;
  /** How long it waits for the next agent. */
  waitS: number;
}

export class StreamKeeper {
  readonly #program: string | undefined;
  readonly #waitS: number;
  readonly #path: string;
  /** What it has, or is being given. */
  readonly #kept = new Map<string, Promise<boolean>>();
  /** It knows by this connection that an agent is there. */
  #connection: Socket | undefined;
  #starting: Promise<boolean> | undefined;

  constructor({ program, directory, waitS }: StreamKeeperOptions) {
    this.#program = program;
    this.#waitS = waitS;
    this.#path = join(directory, SOCKET_NAME);
  }

  /** Of the sandboxes whose streams one keeps that a former agent started. */
  async names(): Promise<ReadonlySet<string>> {
    return (await this.#greet()) ?? new Set();
  }

  /** From now on the streams outlive us, until the sandbox closes its ends of them. False where they do not. */
  keep(name: string, streams: StandardStreams): Promise<boolean> {
    const begun = this.#kept.get(name);
    if (begun !== undefined) return begun;
    const given = this.#give(name, streams).catch(() => false);
    this.#kept.set(name, given);
    const forget = (): void => {
      if (this.#kept.get(name) === given) this.#kept.delete(name);
    };
    void given.then((isKept) => {
      if (!isKept || streams.stdout.closed) forget();
      else streams.stdout.once('close', forget);
    });
    return given;
  }

  /** What leads to the streams that are kept under this name; they end at once where there are none. */
  join(name: string): StandardStreams {
    this.#kept.set(name, Promise.resolve(true));
    const stream = (index: number): Socket => {
      const socket = connect(this.#path);
      socket.write(joinOrder(name, index));
      return socket;
    };
    const stdin = stream(0);
    // As its end, what comes back on the input would go unseen.
    stdin.resume();
    const stdout = stream(1);
    stdout.once('close', () => this.#kept.delete(name));
    return { stdin, stdout, stderr: stream(2) };
  }

  /** Leaves what is kept to the next agent. */
  leave(): void {
    this.#connection?.destroy();
  }

  /** Ends it, also one that a former agent started, and what it keeps with it. */
  async end(): Promise<void> {
    if (this.#connection === undefined) await this.#greet();
    const connection = this.#connection;
    if (connection === undefined) return;
    const closed = once(connection, 'close');
    connection.write(END);
    await Promise.race([closed, wait(END_TIMEOUT_MS, undefined, { ref: false })]);
    connection.destroy();
    await rm(this.#path, { force: true });
  }

  async #give(name: string, streams: StandardStreams): Promise<boolean> {
    if (this.#program === undefined || !(await this.#isThere(this.#program))) return false;
    const messenger = spawnSharing(
      { file: this.#program, argv: ['give', this.#path, name], environment: {} },
      [streams.stdin, streams.stdout, streams.stderr],
    );
    messenger.stdout.resume();
    messenger.stderr.resume();
    const timer = setTimeout(() => messenger.kill('SIGKILL'), ANSWER_TIMEOUT_MS);
    const { exitCode } = await messenger.exited;
    clearTimeout(timer);
    return exitCode === 0;
  }

  async #isThere(program: string): Promise<boolean> {
    if (this.#connection !== undefined) return true;
    this.#starting ??= this.#start(program).finally(() => {
      this.#starting = undefined;
    });
    return this.#starting;
  }

  async #start(program: string): Promise<boolean> {
    if ((await this.#greet()) !== undefined) return true;
    const keeper = spawn({ file: program, argv: ['keep', this.#path, String(this.#waitS)], environment: {} });
    keeper.stderr.resume();
    const timer = setTimeout(() => keeper.kill('SIGKILL'), ANSWER_TIMEOUT_MS);
    await Promise.race([once(keeper.stdout, 'data'), keeper.exited]);
    clearTimeout(timer);
    for (const stream of [keeper.stdin, keeper.stdout, keeper.stderr]) stream.destroy();
    return (await this.#greet()) !== undefined;
  }

  /** Says that we are there, and gives what is kept. Undefined where no keeper is. */
  async #greet(): Promise<Set<string> | undefined> {
    const connection = connect(this.#path);
    const reader = new NameReader();
    const greeted = Promise.withResolvers<Set<string> | undefined>();
    const timer = setTimeout(() => connection.destroy(), ANSWER_TIMEOUT_MS);
    connection.on('error', () => undefined);
    connection.on('data', (bytes: Buffer) => {
      const names = reader.read(bytes);
      if (names !== undefined) greeted.resolve(new Set(names));
    });
    connection.on('close', () => {
      greeted.resolve(undefined);
      if (this.#connection !== connection) return;
      // Killed by somebody: what it had ends with us, until it is kept anew.
      this.#connection = undefined;
      this.#kept.clear();
    });
    connection.write(AGENT_ORDER);
    const names = await greeted.promise;
    clearTimeout(timer);
    if (names === undefined || connection.destroyed) return undefined;
    this.#connection?.destroy();
    this.#connection = connection.unref();
    return names;
  }
}
