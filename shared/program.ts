/**
 * Programs that outlive calls: terminals and background processes. What the edge asks of a host for them, by grants of
 * the acts `terminal` and `process`, travels as a transfer does: under its own window, not numbered, never sent again.
 */
import * as z from 'zod';

const KIB = 1024;
const MIB = 1024 * KIB;

/** Terminals of one session that live at a time, attached or not. */
export const MAX_TERMINALS = 4;
/** Background processes of one session of which something lives at a time. */
export const MAX_PROCESSES = 12;
/** Ended ones that a session still knows. */
export const MAX_ENDED_PROGRAMS = 32;
/** Sockets, log readers and waits of one session for its programs, all together. */
export const MAX_PROGRAM_CALLS = 16;
/** The last bytes of a terminal, kept for who comes back. */
export const TERMINAL_REPLAY_BYTES = 64 * KIB;
/** Written by a process whose streams are a transfer, and not taken yet: beyond it the process waits. */
export const PIPE_BUFFER_BYTES = 256 * KIB;
/** The last bytes of a background process, both streams together. */
export const PROCESS_LOG_BYTES = 1 * MIB;
/** A terminal without a socket ends after this. */
export const TERMINAL_DETACHED_MS = 600_000;
/** Largest message that a client of a terminal may send. */
export const MAX_TERMINAL_MESSAGE_BYTES = 64 * KIB;
/** Bytes of output that a client which says what it took has not taken yet, at most. */
export const TERMINAL_CLIENT_WINDOW_BYTES = 256 * KIB;
/** One that never says so gets this much in all: the edge cannot see how much of it waits to be sent. */
export const TERMINAL_UNTOLD_BYTES = 16 * MIB;
export const MAX_COMMAND_BYTES = 128 * KIB;
/** Of one message to a background process. */
export const MAX_PROCESS_INPUT_BYTES = 64 * KIB;
export const MAX_WAIT_MS = 600_000;
export const MAX_STOP_GRACE_MS = 30_000;

export const TerminalIdSchema = z.string().regex(/^trm_[A-Za-z0-9_-]{22}$/);
export const ProcessIdSchema = z.string().regex(/^prc_[A-Za-z0-9_-]{22}$/);

export const TERMINAL_SIGNALS = [
  'SIGHUP',
  'SIGINT',
  'SIGQUIT',
  'SIGKILL',
  'SIGUSR1',
  'SIGUSR2',
  'SIGTERM',
  'SIGCONT',
  'SIGSTOP',
  'SIGTSTP',
  'SIGWINCH',
] as const;
export type TerminalSignal = (typeof TERMINAL_SIGNALS)[number];

const Side = z.int().min(1).max(4_096);
export const WindowSizeSchema = z.strictObject({ rows: Side, cols: Side });
export type WindowSize = z.infer<typeof WindowSizeSchema>;

/** Text frames of a client. Binary frames are input. */
export const TerminalControlSchema = z.discriminatedUnion('type', [
  z.strictObject({ type: z.literal('resize'), rows: Side, cols: Side }),
  z.strictObject({ type: z.literal('signal'), name: z.enum(TERMINAL_SIGNALS) }),
  /** How many bytes of output the client has handled since it attached, in all. */
  z.strictObject({ type: z.literal('taken'), bytes: z.int().min(0) }),
]);
export type TerminalControl = z.infer<typeof TerminalControlSchema>;

/** Text frames to a client. Binary frames are output; offsets count the bytes since the terminal began. */
export const TerminalEventSchema = z.discriminatedUnion('type', [
  /** First of all: where the output begins that follows. */
  z.strictObject({ type: z.literal('ready'), terminal_id: TerminalIdSchema, offset: z.int().min(0) }),
  /** What lies between is not kept any more; the output goes on at `to`. */
  z.strictObject({ type: z.literal('gap'), from: z.int().min(0), to: z.int().min(0) }),
  z.strictObject({
    type: z.literal('exit'),
    exit_code: z.int().nullable(),
    signal: z.string().max(16).nullable(),
  }),
  /** Of a process whose streams are the transfer: its other output, for people. */
  z.strictObject({ type: z.literal('stderr'), text: z.string().max(MAX_TERMINAL_MESSAGE_BYTES) }),
]);
export type TerminalEvent = z.infer<typeof TerminalEventSchema>;

export const ProcessStreamSchema = z.enum(['stdout', 'stderr']);
export type ProcessStream = z.infer<typeof ProcessStreamSchema>;

export const ProcessSchema = z.object({
  process_id: ProcessIdSchema,
  command: z.string(),
  cwd: z.string(),
  state: z.enum(['running', 'exited']),
  /** In the sandbox. */
  pid: z.int(),
  exit_code: z.int().nullable(),
  signal: z.string().nullable(),
  started_at: z.iso.datetime(),
  ended_at: z.iso.datetime().nullable(),
  /** Written so far, both streams together; logs older than `log_start` are gone. */
  log_bytes: z.int().min(0),
  log_start: z.int().min(0),
  /** How much it had written when input last came; absent where none did. */
  input_at: z.int().min(0).optional(),
});
export type Process = z.infer<typeof ProcessSchema>;
export const ProcessListSchema = z.object({ processes: z.array(ProcessSchema) });

/** One piece of what a process wrote, or what is said instead. Positions count both streams together. */
export const LogEventSchema = z.discriminatedUnion('type', [
  z.object({
    type: z.literal('output'),
    stream: ProcessStreamSchema,
    offset: z.int().min(0),
    end: z.int().min(0),
    /** As text where it is UTF-8. */
    text: z.string().optional(),
    base64: z.string().optional(),
  }),
  z.object({ type: z.literal('gap'), from: z.int().min(0), to: z.int().min(0) }),
  z.object({ type: z.literal('exit'), exit_code: z.int().nullable(), signal: z.string().nullable() }),
]);
export type LogEvent = z.infer<typeof LogEventSchema>;

const UntilSchema = z.discriminatedUnion('kind', [
  z.strictObject({ kind: z.literal('exit') }),
  z.strictObject({ kind: z.literal('line'), text: z.string().min(1).max(1_024), after: z.int().min(0) }),
  z.strictObject({ kind: z.literal('port'), port: z.int().min(1).max(65_535) }),
]);
export type WaitUntil = z.infer<typeof UntilSchema>;

export const WaitedSchema = z.object({
  /** Whether it came within the time. */
  reached: z.boolean(),
  /** The line that was waited for. */
  line: z.string().nullable(),
  process: ProcessSchema,
});
export type Waited = z.infer<typeof WaitedSchema>;

const Environment = z.record(z.string().regex(/^[A-Za-z_][A-Za-z0-9_]*$/), z.string().max(128 * KIB));

/** Payload of a `terminal` or `process` grant, beside those of `file`. */
export const ProgramRequestSchema = z.discriminatedUnion('operation', [
  z.strictObject({
    operation: z.literal('terminal_attach'),
    terminal_id: TerminalIdSchema,
    /** Made by this attach; otherwise it must be there. */
    create: z.boolean(),
    size: WindowSizeSchema.nullable(),
    /** Replay from here; null: everything that is kept. */
    after: z.int().min(0).nullable(),
  }),
  z.strictObject({
    operation: z.literal('process_start'),
    process_id: ProcessIdSchema,
    command: z.string().min(1).max(MAX_COMMAND_BYTES),
    cwd: z.string().min(1).max(4_095).nullable(),
    environment: Environment,
    /** Its input stays open. Only said where it is: hosts of before do not know the word. */
    stdin: z.literal(true).optional(),
  }),
  z.strictObject({
    operation: z.literal('process_input'),
    process_id: ProcessIdSchema,
    bytes: z.base64().max(Math.ceil(MAX_PROCESS_INPUT_BYTES / 3) * 4),
    /** Nothing comes after it. */
    end: z.boolean(),
  }),
  /** Its streams are the messages of this transfer, and it ends with it. */
  z.strictObject({
    operation: z.literal('process_pipe'),
    process_id: ProcessIdSchema,
    argv: z.array(z.string().max(MAX_COMMAND_BYTES)).min(1).max(256),
    cwd: z.string().min(1).max(4_095).nullable(),
    environment: Environment,
  }),
  z.strictObject({ operation: z.literal('process_list') }),
  z.strictObject({ operation: z.literal('process_read'), process_id: ProcessIdSchema }),
  z.strictObject({
    operation: z.literal('process_logs'),
    process_id: ProcessIdSchema,
    after: z.int().min(0).nullable(),
    stream: ProcessStreamSchema.nullable(),
    /** Goes on until the process has ended. */
    follow: z.boolean(),
  }),
  z.strictObject({
    operation: z.literal('process_wait'),
    process_id: ProcessIdSchema,
    until: UntilSchema,
    timeout_ms: z.int().min(1).max(MAX_WAIT_MS),
  }),
  z.strictObject({
    operation: z.literal('process_stop'),
    process_id: ProcessIdSchema,
    grace_ms: z.int().min(0).max(MAX_STOP_GRACE_MS),
  }),
]);
export type ProgramRequest = z.infer<typeof ProgramRequestSchema>;

/*
 * A terminal's messages in both directions of its transfer: u8 kind, u32 length, then as many bytes. Both ends hold less
 * than one message between two pieces.
 */
export const MESSAGE_BYTES = 0;
export const MESSAGE_TEXT = 1;
const HEAD_BYTES = 5;

export interface TerminalMessage {
  kind: number;
  bytes: Uint8Array;
}

export function encodeMessage(kind: number, bytes: Uint8Array): Uint8Array {
  const message = new Uint8Array(HEAD_BYTES + bytes.length);
  message[0] = kind;
  new DataView(message.buffer).setUint32(1, bytes.length);
  message.set(bytes, HEAD_BYTES);
  return message;
}

export class MessageDecoder {
  #held = new Uint8Array(0);

  /** The messages that are whole with these bytes; undefined where they are no such messages. */
  push(bytes: Uint8Array): TerminalMessage[] | undefined {
    const all = new Uint8Array(this.#held.length + bytes.length);
    all.set(this.#held);
    all.set(bytes, this.#held.length);
    const view = new DataView(all.buffer);
    const messages: TerminalMessage[] = [];
    let at = 0;
    while (all.length - at >= HEAD_BYTES) {
      const kind = all[at] ?? 0;
      const length = view.getUint32(at + 1);
      if (kind > MESSAGE_TEXT || length > MAX_TERMINAL_MESSAGE_BYTES) return undefined;
      const end = at + HEAD_BYTES + length;
      if (end > all.length) break;
      messages.push({ kind, bytes: all.subarray(at + HEAD_BYTES, end) });
      at = end;
    }
    this.#held = all.slice(at);
    return messages;
  }
}
