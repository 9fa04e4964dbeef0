/**
 * The tools of a program: functions whose calls leave the sandbox and resolve to what came back. Images bring the Node of
 * their distribution: nothing newer than version 18 is used here.
 */
import { inspect } from 'node:util';

const MAX_ARGUMENTS_BYTES = 1024 * 1024;
const MAX_OUTSTANDING = 32;
const FIRST_LOOK_MS = 30;
const LAST_LOOK_MS = 1_000;
const later = setTimeout;
const stop = clearTimeout;

export class ToolError extends Error {
  constructor(code, message, tool) {
    super(message);
    this.name = 'ToolError';
    this.code = code;
    this.tool = tool;
  }
}

/** The calls of one program. `send` gives a message to the thread that speaks to the host. */
export class Calls {
  #id;
  #send;
  #ended = false;
  #backlog = [];
  #outstanding = new Map();
  #lastCall = 0;
  #look;
  #lookAfterMs = FIRST_LOOK_MS;
  #said;

  constructor(id, send) {
    this.#id = id;
    this.#send = send;
  }

  call(name, args) {
    if (this.#ended) {
      return Promise.reject(
        new ToolError('program_ended', 'the program that could call this tool has ended', name),
      );
    }
    let text;
    try {
      text = encoded(name, args);
    } catch (error) {
      return Promise.reject(error);
    }
    return new Promise((resolve, reject) => {
      this.#backlog.push({ name, text, resolve, reject });
      this.#sendSome();
    });
  }

  take({ call, result, error }) {
    const waiting = this.#outstanding.get(call);
    this.#outstanding.delete(call);
    this.#sendSome();
    this.#moved();
    if (error === undefined) waiting?.resolve(result);
    else waiting?.reject(new ToolError(error.code, error.message, waiting.name));
  }

  /** What nobody waits for any more is let go: a rejection would only trouble the next cell. */
  close() {
    this.#ended = true;
    stop(this.#look);
    this.#backlog = [];
    this.#outstanding.clear();
  }

  #sendSome() {
    while (this.#backlog.length > 0 && this.#outstanding.size < MAX_OUTSTANDING) {
      const request = this.#backlog.shift();
      this.#lastCall += 1;
      this.#outstanding.set(this.#lastCall, request);
      const { name, text } = request;
      this.#send({ type: 'tool_call', id: this.#id, call: this.#lastCall, name, arguments: text });
      this.#moved();
    }
  }

  #moved() {
    this.#said = undefined;
    this.#lookAfterMs = FIRST_LOOK_MS;
    this.#lookLater();
  }

  #lookLater() {
    stop(this.#look);
    // It keeps nothing alive, and so is not among the timers that are counted below.
    this.#look =
      this.#outstanding.size === 0 ? undefined : later(() => this.#say(), this.#lookAfterMs).unref();
  }

  /** The loop came round to this, so no code of the program runs: it waits, for tools or for timers of its own too. */
  #say() {
    const rests = !process
      .getActiveResourcesInfo()
      .some((kind) => kind === 'Timeout' || kind === 'Immediate');
    if (this.#said !== rests) {
      this.#said = rests;
      this.#send({ type: 'waiting', id: this.#id, rests });
    }
    this.#lookAfterMs = Math.min(2 * this.#lookAfterMs, LAST_LOOK_MS);
    if (!rests) this.#lookLater();
  }
}

function encoded(name, args) {
  if (typeof args !== 'object' || args === null || Array.isArray(args)) {
    throw new ToolError('invalid_arguments', 'the arguments are one object', name);
  }
  const check = (key, value) => {
    if (typeof value === 'bigint') {
      throw new ToolError('invalid_arguments', `${key} is a BigInt: give it as text`, name);
    }
    if (typeof value !== 'number') return value;
    if (!Number.isFinite(value))
      throw new ToolError('invalid_arguments', `${key} is ${value}, which is not JSON`, name);
    if (Number.isInteger(value) && !Number.isSafeInteger(value)) {
      throw new ToolError(
        'invalid_arguments',
        `${key} is an integer beyond 2**53 - 1: give it as text`,
        name,
      );
    }
    return value;
  };
  const text = JSON.stringify(args, check);
  const bytes = Buffer.byteLength(text, 'utf8');
  if (bytes > MAX_ARGUMENTS_BYTES) {
    const message = `the arguments have ${bytes} bytes as JSON, at most ${MAX_ARGUMENTS_BYTES} leave the sandbox`;
    throw new ToolError('arguments_too_large', message, name);
  }
  return text;
}

/** `current` gives the calls of the program that runs, if one does; `given` is the data that it was begun with. */
export function toolsOf(listed, given, current) {
  const call = (name, args = {}) => {
    const calls = current();
    return calls === undefined
      ? Promise.reject(
          new ToolError('program_ended', 'the program that could call this tool has ended', name),
        )
      : calls.call(name, args);
  };
  const documentation = listed.map((tool) => tool.documentation).join('\n\n');
  const root = described(Object.create(null), documentation);
  root.call = (name, args) => call(String(name), args);
  root.arguments = given;
  root.names = listed.map(({ name }) => name);
  // The shorter paths first: a tool may stand where others are below it.
  for (const tool of [...listed].sort((one, other) => one.path.length - other.path.length)) {
    const callTool = described((args) => call(tool.name, args), tool.documentation);
    let node = root;
    for (const part of tool.path.slice(0, -1)) node = node[part] ??= described(Object.create(null), part);
    node[tool.path.at(-1)] = callTool;
    if (!Object.hasOwn(root, tool.name)) hidden(root, tool.name, callTool);
  }
  return root;
}

function described(target, text) {
  hidden(target, 'toString', () => text);
  if (typeof target === 'function') hidden(target, inspect.custom, () => text);
  return target;
}

function hidden(target, name, value) {
  Object.defineProperty(target, name, { value, configurable: true, enumerable: false, writable: true });
}
