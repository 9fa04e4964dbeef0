/** One program in the guest that outlives calls: its output in a ring, its end, and who follows it. */
import { failure, type Outcome, success } from '../../../shared/errors.ts';
import type { ProcessStream } from '../../../shared/program.ts';
import { incompleteSuffixLength } from '../../execution/utf8-edge.ts';
import type { Channel } from '../../guest-link/channel.ts';
import type { CarriedProgram } from './carried.ts';
import { OutputRing, type Piece } from './output-ring.ts';
import type { BackgroundProcess, Gap, ProgramEnd } from './port.ts';

const RELEASE_TIMEOUT_MS = 10_000;

export interface ProgramFacts {
  id: string;
  command: string;
  cwd: string;
}

export class GuestProgram implements BackgroundProcess {
  readonly id: string;
  readonly command: string;
  readonly cwd: string;
  readonly startedAtMs: number;
  readonly ended: Promise<ProgramEnd>;
  protected readonly ring: OutputRing;
  readonly #followers = new Set<{ position: number }>();
  readonly #incomplete: Record<ProcessStream, Uint8Array> = {
    stdout: new Uint8Array(0),
    stderr: new Uint8Array(0),
  };
  readonly #ended = Promise.withResolvers<ProgramEnd>();
  #channel: Channel | undefined;
  #end: ProgramEnd | undefined;
  #inputAt: number | undefined;
  /**
   * Whoever waits, waits for this one and looks again: a promise that stands for as long as the program would keep what each
   * of them ever hung on it, as does one that is raced against.
   */
  #changed = Promise.withResolvers<void>();
  readonly #onAbort = (): void => this.wake();

  /** `carried`: it goes on from a checkpoint. */
  constructor(facts: ProgramFacts, ringBytes: number, carried?: CarriedProgram) {
    this.startedAtMs = carried?.started_at_ms ?? Date.now();
    this.id = facts.id;
    this.command = facts.command;
    this.cwd = facts.cwd;
    this.ring = new OutputRing(ringBytes);
    this.ended = this.#ended.promise;
    if (carried !== undefined) this.#goOnFrom(carried);
  }

  /** How it stands; only while the guest stands still. */
  carry(): CarriedProgram {
    const { stdout, stderr } = this.#incomplete;
    return {
      id: this.id,
      command: this.command,
      cwd: this.cwd,
      started_at_ms: this.startedAtMs,
      ring: this.ring.carry(),
      incomplete: {
        stdout: Buffer.from(stdout).toString('base64'),
        stderr: Buffer.from(stderr).toString('base64'),
      },
      ...(this.#inputAt === undefined ? {} : { input_at: this.#inputAt }),
      end: this.#end ?? null,
      channel: this.#channel === undefined || this.isGone ? null : this.#channel.id,
    };
  }

  get pid(): number {
    return this.#channel?.pid ?? 0;
  }

  get end(): ProgramEnd | undefined {
    return this.#end;
  }

  get inputAt(): number | undefined {
    return this.#inputAt;
  }

  get startOffset(): number {
    return this.ring.startOffset;
  }

  get endOffset(): number {
    return this.ring.endOffset;
  }

  /** Neither it nor anything that it started. */
  get isGone(): boolean {
    return this.#channel === undefined ? this.#end !== undefined : this.#channel.isGone;
  }

  protected get channel(): Channel | undefined {
    return this.#channel;
  }

  /** `letSleep` is called at its end: while it runs its sandbox is awake. */
  run(channel: Channel, letSleep: () => void): void {
    this.#channel = channel;
    void channel.exited.then((exit) => {
      this.#flushIncomplete();
      const { exitCode, signal } = exit.ok ? exit.value : { exitCode: null, signal: 'SIGKILL' };
      this.#end ??= { exitCode, signal, endedAtMs: Date.now() };
      this.#ended.resolve(this.#end);
      this.wake();
      letSleep();
    });
  }

  /** Where output goes: credit for it is given back when this is settled. */
  readonly take = (stream: ProcessStream, bytes: Uint8Array): void | Promise<void> => {
    this.keep(stream, bytes);
    this.wake();
  };

  async *follow(after: number, signal: AbortSignal): AsyncIterable<Piece | Gap> {
    const follower = { position: Math.min(after, this.ring.endOffset) };
    this.#followers.add(follower);
    signal.addEventListener('abort', this.#onAbort);
    try {
      while (!signal.aborted) {
        const changed = this.#changed.promise;
        const piece = this.ring.from(follower.position);
        if (piece === undefined) {
          if (this.#end !== undefined) return;
          await changed;
          continue;
        }
        if (piece.offset > follower.position) yield { gap: { from: follower.position, to: piece.offset } };
        yield piece;
        follower.position = piece.offset + piece.bytes.length;
        this.wake();
      }
    } finally {
      signal.removeEventListener('abort', this.#onAbort);
      this.#followers.delete(follower);
      this.wake();
    }
  }

  async endsBefore(signal: AbortSignal): Promise<boolean> {
    signal.addEventListener('abort', this.#onAbort);
    while (this.#end === undefined && !signal.aborted) await this.#changed.promise;
    signal.removeEventListener('abort', this.#onAbort);
    return this.#end !== undefined;
  }

  async input(bytes: Uint8Array, isLast: boolean): Promise<Outcome<null>> {
    const channel = this.#channel;
    if (channel === undefined || this.#end !== undefined)
      return failure('execution_not_running', 'the process has ended');
    const at = this.ring.endOffset;
    const written = await channel.writeStdin(bytes);
    if (!written.ok) {
      const { reason, message } = written.failure;
      return failure(reason === 'limit' ? 'queue_full' : 'execution_not_running', message);
    }
    this.#inputAt = at;
    if (isLast) channel.closeStdin();
    return success(null);
  }

  async stop(graceMs: number): Promise<void> {
    const channel = this.#channel;
    if (channel === undefined) return;
    if (graceMs > 0 && !channel.isGone) {
      channel.signal('SIGTERM', 'tree');
      const timer = Promise.withResolvers<void>();
      const handle = setTimeout(timer.resolve, graceMs);
      await Promise.race([channel.gone, timer.promise]);
      clearTimeout(handle);
    }
    await channel.release(RELEASE_TIMEOUT_MS);
  }

  /** Whole characters go into the ring: a reader's piece of text is then text, wherever it was cut. */
  protected keep(stream: ProcessStream, bytes: Uint8Array): void {
    const held = this.#incomplete[stream];
    const all = held.length === 0 ? bytes : Buffer.concat([held, bytes]);
    const whole = all.length - incompleteSuffixLength(all);
    this.#incomplete[stream] = all.slice(whole);
    if (whole > 0) this.ring.push(stream, all.subarray(0, whole));
  }

  /** Position of the follower that has read least; infinite where there is none. */
  protected get slowest(): number {
    return Math.min(...[...this.#followers].map(({ position }) => position));
  }

  /** Resolves when something was written, read, or has ended. */
  protected get changed(): Promise<void> {
    return this.#changed.promise;
  }

  protected wake(): void {
    const { resolve } = this.#changed;
    this.#changed = Promise.withResolvers<void>();
    resolve();
  }

  #goOnFrom({ ring, incomplete, end, input_at }: CarriedProgram): void {
    this.#inputAt = input_at;
    this.ring.goOnFrom(ring);
    this.#incomplete.stdout = Buffer.from(incomplete.stdout, 'base64');
    this.#incomplete.stderr = Buffer.from(incomplete.stderr, 'base64');
    if (end === null) return;
    this.#end = end;
    this.#ended.resolve(end);
  }

  #flushIncomplete(): void {
    for (const stream of ['stdout', 'stderr'] as const) {
      const rest = this.#incomplete[stream];
      if (rest.length > 0) this.ring.push(stream, rest);
      this.#incomplete[stream] = new Uint8Array(0);
    }
  }
}
