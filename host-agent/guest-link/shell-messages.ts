/** What goes over the control pair of a waiting shell: the request for one command, and the state it leaves. */
import { fail, type GuestResult, succeed } from './failure.ts';
import { LengthPrefixedDecoder, lengthPrefixed } from './length-prefixed.ts';

const MAX_STATE_BYTES = 1024 * 1024;
const MAX_COMMAND_BYTES = 2 * 1024 * 1024;
const STATE_COMPLETE = 1;
const STARTED = 2;
const NUL = Buffer.alloc(1);

/** What lives on from call to call, in the bytes of the guest's kernel: names need not be UTF-8. */
export interface ShellState {
  readonly cwd: Uint8Array;
  /** `NAME=value`, each. */
  readonly environment: readonly Uint8Array[];
}

export function shellState(cwd: string, environment: readonly string[]): ShellState {
  return { cwd: Buffer.from(cwd), environment: environment.map((variable) => Buffer.from(variable)) };
}

export function encodeShellRequest(state: ShellState, home: string, command: string): GuestResult<Buffer> {
  const strings = [state.cwd, Buffer.from(home), Buffer.from(command), ...state.environment];
  if (strings.some((text) => text.includes(0))) return fail('limit', 'a NUL byte in the command');
  const count = Buffer.alloc(4);
  count.writeUInt32BE(state.environment.length, 0);
  const body = Buffer.concat([count, ...strings.flatMap((text) => [text, NUL])]);
  if (body.length > MAX_COMMAND_BYTES + MAX_STATE_BYTES) return fail('limit', 'the command is too long');
  return succeed(lengthPrefixed(body));
}

/** A state that is not whole keeps the variables from before. */
export function parseShellState(body: Buffer, before: ShellState): ShellState | undefined {
  const texts: Buffer[] = [];
  for (let at = 1; at < body.length; ) {
    const end = body.indexOf(0, at);
    if (end < 0) return undefined;
    texts.push(body.subarray(at, end));
    at = end + 1;
  }
  const [cwd, ...environment] = texts;
  if (cwd === undefined) return undefined;
  return {
    cwd: cwd.length > 0 ? cwd : before.cwd,
    environment: body[0] === STATE_COMPLETE ? environment : before.environment,
  };
}

/** Whether the command has begun; what says that is no state. */
export function saysStarted(body: Buffer): boolean {
  return body[0] === STARTED;
}

/** What a shell says on its control pair; nothing more once it talks nonsense. */
export class ShellMessages {
  readonly #decoder = new LengthPrefixedDecoder(MAX_STATE_BYTES);
  onMessage: (body: Buffer) => void = () => undefined;

  push(bytes: Uint8Array): void {
    for (const body of this.#decoder.push(bytes).bodies) this.onMessage(body);
  }
}
