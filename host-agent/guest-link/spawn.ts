/** How a program is asked for: what its start may say, and the frames that say it. */
import type { OutputSink } from './channel.ts';
import { fail, type GuestResult, succeed } from './failure.ts';
import { MAX_PAYLOAD_BYTES } from './frames.ts';
import { u32 } from './integers.ts';
import { OUTPUT_WINDOW_BYTES } from './output-window.ts';

export interface SpawnOptions {
  readonly argv: readonly string[];
  readonly cwd: string | Uint8Array;
  /** `NAME=value`, each. */
  readonly environment: readonly (string | Uint8Array)[];
  /** Gives the program a control pair on file descriptors 198 (in) and 199 (out). */
  readonly control?: boolean;
  /** Starts with output discarded. */
  readonly muted?: boolean;
  readonly onOutput?: OutputSink;
  readonly onControl?: (bytes: Uint8Array) => void;
  /** Credit of the control stream is then given by `consumeControl` of the channel only. */
  readonly manualControl?: boolean;
  /** Standard input can be begun anew by `renewStdin` of the channel, also after its end. */
  readonly renewableStdin?: boolean;
  /** The program will be forked from: it finds a socket for that where the control pair would be. */
  readonly isTemplate?: boolean;
  /** How much the guest may send of a standard stream before its bytes are consumed. */
  readonly outputWindowBytes?: number;
  readonly timeoutMs?: number;
}

const FLAG_CONTROL = 1;
const FLAG_MUTED = 2;
const FLAG_INPUT_RENEWED = 4;
const FLAG_TEMPLATE = 0x40;
const NUL = Buffer.alloc(1);

function terminated(text: string | Uint8Array): Buffer[] {
  return [Buffer.from(text), NUL];
}

export function encodeSpawn(options: SpawnOptions): GuestResult<Buffer> {
  const strings = [options.cwd, ...options.argv, ...options.environment];
  if (strings.some((text) => Buffer.from(text).includes(0)))
    return fail('spawn_failed', 'a NUL byte in the arguments, the environment or the folder', 'EINVAL');
  const flags =
    (options.control === true ? FLAG_CONTROL : 0) |
    (options.muted === true ? FLAG_MUTED : 0) |
    (options.renewableStdin === true ? FLAG_INPUT_RENEWED : 0) |
    (options.isTemplate === true ? FLAG_TEMPLATE : 0);
  const credit = u32(OUTPUT_WINDOW_BYTES);
  const streamCredit = u32(options.outputWindowBytes ?? OUTPUT_WINDOW_BYTES);
  const payload = Buffer.concat([
    Buffer.from([flags]),
    streamCredit,
    streamCredit,
    credit,
    ...terminated(options.cwd),
    u32(options.argv.length),
    ...options.argv.flatMap(terminated),
    u32(options.environment.length),
    ...options.environment.flatMap(terminated),
  ]);
  if (payload.length > MAX_PAYLOAD_BYTES)
    return fail('limit', `arguments and environment of ${payload.length} bytes`, 'E2BIG');
  return succeed(payload);
}

/** Muted, and with a control pair, in which what it is to prepare for lies already. */
export function encodeFork(template: number, preparation: Uint8Array): Buffer {
  const credit = u32(OUTPUT_WINDOW_BYTES);
  return Buffer.concat([Buffer.from([FLAG_MUTED]), credit, credit, credit, u32(template), preparation]);
}
