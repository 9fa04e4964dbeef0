/** What goes over the control pair of a waiting shell: the request for one command, and the state it leaves. */
import { fail, type GuestResult, succeed } from './failure.ts';
import { u32 } from './integers.ts';
import { LengthPrefixedDecoder, lengthPrefixed } from './length-prefixed.ts';

const MAX_STATE_BYTES = 1024 * 1024;
const MAX_COMMAND_BYTES = 2 * 1024 * 1024;
const STATE_COMPLETE = 1;
const STARTED = 2;
const MAX_VARIABLES = 4096;
/** Far above what a shell has to say; a command can write here too. */
const MAX_MESSAGES = 64;
/** In place of the number of variables. */
const AS_PREPARED = 0xffff_ffff;
/** The template takes no more. */
const MAX_PREPARATION_BYTES = 16 * 1024;
const NUL = 0;
const EQUALS = 0x3d;

/** What lives on from call to call, in the bytes of the guest's kernel: names need not be UTF-8. */
export interface ShellState {
  readonly cwd: Uint8Array;
  /** `NAME=value`, each with a NUL at its end. One buffer: a guest chooses how many variables there are. */
  readonly environment: Uint8Array;
}

export function shellState(cwd: string, environment: readonly string[]): ShellState {
  return { cwd: Buffer.from(cwd), environment: Buffer.from(environment.map((text) => `${text}\0`).join('')) };
}

export function isSameState(one: ShellState, other: ShellState): boolean {
  return Buffer.compare(one.cwd, other.cwd) === 0 && Buffer.compare(one.environment, other.environment) === 0;
}

export function encodeState({ cwd, environment }: ShellState): { cwd: string; environment: string } {
  return {
    cwd: Buffer.from(cwd).toString('base64'),
    environment: Buffer.from(environment).toString('base64'),
  };
}

export function decodeState({ cwd, environment }: { cwd: string; environment: string }): ShellState {
  return { cwd: Buffer.from(cwd, 'base64'), environment: Buffer.from(environment, 'base64') };
}

/** Those of the variables that choose the locale. */
export function localeVariables({ environment }: ShellState): Uint8Array[] {
  const variables: Uint8Array[] = [];
  for (let at = 0; at < environment.byteLength; ) {
    const end = environment.indexOf(NUL, at);
    if (end < 0) break;
    const variable = environment.subarray(at, end);
    if (/^(LANG|LC_[A-Z]+)=/.test(Buffer.from(variable).toString('latin1'))) variables.push(variable);
    at = end + 1;
  }
  return variables;
}

/** `variables`: how many there are in the environment. */
function requestBody(variables: number, strings: readonly Uint8Array[], environment: Uint8Array): Buffer {
  const ended = strings.flatMap((text) => [text, Buffer.alloc(1)]);
  return Buffer.concat([u32(variables), ...ended, environment]);
}

export function encodeShellRequest(state: ShellState, home: string, command: string): GuestResult<Buffer> {
  const strings = [state.cwd, Buffer.from(home), Buffer.from(command)];
  if (strings.some((text) => text.includes(NUL))) return fail('limit', 'a NUL byte in the command');
  const body = requestBody(countVariables(state.environment) ?? 0, strings, state.environment);
  if (body.length > MAX_COMMAND_BYTES + MAX_STATE_BYTES) return fail('limit', 'the command is too long');
  return succeed(lengthPrefixed(body));
}

/** For a shell that was prepared for the state that the call starts from. */
export function encodePreparedRequest(command: string): GuestResult<Buffer> {
  const text = Buffer.from(command);
  if (text.includes(NUL)) return fail('limit', 'a NUL byte in the command');
  if (text.length > MAX_COMMAND_BYTES) return fail('limit', 'the command is too long');
  const nothing = Buffer.alloc(0);
  return succeed(lengthPrefixed(requestBody(AS_PREPARED, [nothing, nothing, text], nothing)));
}

/** What a shell that waits can be prepared for; undefined where it is too much. */
export function encodePreparation(state: ShellState, home: string): Buffer | undefined {
  const variables = countVariables(state.environment);
  const strings = [state.cwd, Buffer.from(home), Buffer.alloc(0)];
  if (variables === undefined || strings.some((text) => text.includes(NUL))) return undefined;
  const body = requestBody(variables, strings, state.environment);
  return body.length > MAX_PREPARATION_BYTES ? undefined : body;
}

/** What is not whole, or more than is kept, keeps the variables from before. */
export function parseShellState(body: Buffer, before: ShellState): ShellState | undefined {
  const end = body.indexOf(NUL, 1);
  if (end < 0) return undefined;
  const variables = body.subarray(end + 1);
  const isWhole = body[0] === STATE_COMPLETE && countVariables(variables) !== undefined;
  return {
    cwd: end > 1 ? Uint8Array.from(body.subarray(1, end)) : before.cwd,
    environment: isWhole ? variables : before.environment,
  };
}

/** Undefined for what is not variables, or too many. */
function countVariables(variables: Uint8Array): number | undefined {
  let count = 0;
  for (let at = 0; at < variables.byteLength; count++) {
    const end = variables.indexOf(NUL, at);
    const equals = variables.indexOf(EQUALS, at);
    if (end < 0 || equals <= at || equals > end || count === MAX_VARIABLES) return undefined;
    at = end + 1;
  }
  return count;
}

/** Whether the command has begun; what says that is no state. */
export function saysStarted(body: Buffer): boolean {
  return body[0] === STARTED;
}

/** What a shell says on its control pair; nothing more once it talks nonsense or too much. */
export class ShellMessages {
  readonly #decoder = new LengthPrefixedDecoder(MAX_STATE_BYTES);
  #messages = 0;
  onMessage: (body: Buffer) => void = () => undefined;

  carry(): { pending: string; messages: number } {
    return { pending: this.#decoder.pending.toString('base64'), messages: this.#messages };
  }

  /** Goes on where another left off. */
  goOnFrom({ pending, messages }: { pending: string; messages: number }): void {
    this.#messages = messages;
    this.push(Buffer.from(pending, 'base64'));
  }

  push(bytes: Uint8Array): void {
    if (this.#messages >= MAX_MESSAGES) return;
    for (const body of this.#decoder.push(bytes).bodies.slice(0, MAX_MESSAGES - this.#messages)) {
      this.#messages++;
      this.onMessage(body);
    }
  }
}
