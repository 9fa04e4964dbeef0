/** Programs of a sandbox that outlive calls: terminals and background processes. */
import type { Outcome } from '../../../shared/errors.ts';
import type { TerminalSignal, WindowSize } from '../../../shared/program.ts';
import type { Piece } from './output-ring.ts';

export interface ProgramEnd {
  exitCode: number | null;
  signal: string | null;
  endedAtMs: number;
}

export interface Gap {
  gap: { from: number; to: number };
}

export interface Program {
  readonly id: string;
  readonly command: string;
  readonly cwd: string;
  readonly pid: number;
  readonly startedAtMs: number;
  readonly end: ProgramEnd | undefined;
  readonly ended: Promise<ProgramEnd>;
  /** Positions of the oldest byte that is kept and of the next one. */
  readonly startOffset: number;
  readonly endOffset: number;
  /**
   * What it wrote from the position on, and what it writes; over when the program has ended and all was given, or when
   * the signal aborts. What is not kept any more is told as a gap.
   */
  follow(after: number, signal: AbortSignal): AsyncIterable<Piece | Gap>;
  /** TERM to all of it, and KILL to what is left after the grace. */
  stop(graceMs: number): Promise<void>;
}

export interface Terminal extends Program {
  /** While there is at least one, the terminal lives, and its program waits for the slowest. */
  attach(): () => void;
  /** Resolves when there is room for more. */
  write(bytes: Uint8Array): Promise<void>;
  resize(size: WindowSize): void;
  signal(name: TerminalSignal): void;
}

export interface BackgroundProcess extends Program {
  /** Whether it has ended, once it has or the signal aborts; of who waits nothing stays behind. */
  endsBefore(signal: AbortSignal): Promise<boolean>;
  /** How much it had written when input last came; undefined where none did. */
  readonly inputAt: number | undefined;
  /** Resolves when there is room for more; fails where the input was closed before. */
  input(bytes: Uint8Array, isLast: boolean): Promise<Outcome<null>>;
}

export interface ProcessRequest {
  command: string;
  /** Whether its input stays open. */
  stdin?: boolean;
  cwd: string | null;
  environment: Readonly<Record<string, string>>;
}

/** Its output waits for who follows it. */
export interface PipedProcess extends Program {
  /** Resolves when there is room for more. */
  write(bytes: Uint8Array): Promise<void>;
}

export interface PipeRequest {
  argv: readonly string[];
  cwd: string | null;
  environment: Readonly<Record<string, string>>;
}

export interface SandboxPrograms {
  openTerminal(id: string, size: WindowSize): Promise<Outcome<Terminal>>;
  terminal(id: string): Outcome<Terminal>;
  startProcess(id: string, request: ProcessRequest): Promise<Outcome<BackgroundProcess>>;
  openPipe(id: string, request: PipeRequest): Promise<Outcome<PipedProcess>>;
  process(id: string): Outcome<BackgroundProcess>;
  processes(): readonly BackgroundProcess[];
  /** Whether something in the sandbox takes connections on the port, once it does; false when the signal aborts. */
  listens(port: number, signal: AbortSignal): Promise<boolean>;
}
