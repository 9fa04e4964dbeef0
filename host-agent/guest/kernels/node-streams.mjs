/** The standard streams of cells, on the descriptors 0 to 2. */
import { closeSync, constants, fstatSync, openSync, ReadStream, readSync, writeSync } from 'node:fs';
import { Socket } from 'node:net';
import { Writable } from 'node:stream';

const RETRY_MS = 2;
const DRAIN_BYTES = 64 * 1024;
const MAX_DRAINS = 64;
const sleeper = new Int32Array(new SharedArrayBuffer(4));

/**
 * Written at once, and blocking where nobody reads: that is the backpressure. The streams that Node makes would set
 * the pipe, which programs of the cell share, to not blocking, and keep in memory what it does not take.
 */
function openOutput(fd) {
  const stream = new Writable({
    decodeStrings: true,
    write(chunk, _encoding, done) {
      try {
        for (let at = 0; at < chunk.length; ) at += writeSome(fd, chunk, at);
        done();
      } catch (error) {
        done(error);
      }
    },
  });
  return Object.assign(stream, { fd, isTTY: false });
}

function writeSome(fd, chunk, at) {
  try {
    return writeSync(fd, chunk, at);
  } catch (error) {
    if (error.code !== 'EAGAIN') throw error;
    // A program of the cell has set the pipe to not blocking.
    Atomics.wait(sleeper, 0, 0, RETRY_MS);
    return 0;
  }
}

export class StandardStreams {
  #kept = [0, 1, 2].map((fd) => openSync(`/proc/self/fd/${fd}`, fd === 0 ? 'r' : 'w'));
  #identities = this.#kept.map(identity);
  #outputs = {};
  #withInput = false;
  #input;

  constructor() {
    this.#replace(0, '/dev/null', 'r');
    for (const [name, fd] of [
      ['stdout', 1],
      ['stderr', 2],
    ]) {
      Object.defineProperty(process, name, {
        configurable: true,
        enumerable: true,
        get: () => this.#output(name, fd),
      });
    }
    Object.defineProperty(process, 'stdin', {
      configurable: true,
      enumerable: true,
      get: () => (this.#input ??= this.#openInput()),
    });
  }

  /** Before each cell: the descriptors are what they were, whatever the last cell did to them. */
  prepare(withInput) {
    for (const fd of [1, 2])
      if (identity(fd) !== this.#identities[fd]) this.#replace(fd, `/proc/self/fd/${this.#kept[fd]}`, 'w');
    // Writes are done at once, so one that still waits was broken into, and its stream writes no more.
    for (const name of ['stdout', 'stderr'])
      if ((this.#outputs[name]?.writableLength ?? 0) > 0) this.#outputs[name] = undefined;
    this.#input?.destroy();
    this.#input = undefined;
    if (withInput) this.#dropOldInput();
    if (withInput) this.#replace(0, `/proc/self/fd/${this.#kept[0]}`, 'r');
    else if (this.#withInput || identity(0) === undefined) this.#replace(0, '/dev/null', 'r');
    this.#withInput = withInput;
  }

  /** Where the console writes: to the stream of the process, also to one that a cell puts in its place. */
  forConsole(name) {
    const none = () => {};
    const write = (text) => process[name].write(text);
    return { write, on: none, once: none, removeListener: none, listenerCount: () => 1 };
  }

  #output(name, fd) {
    const stream = this.#outputs[name];
    if (stream?.writable === true) return stream;
    this.#outputs[name] = openOutput(fd);
    this.#outputs[name].on('error', () => {});
    return this.#outputs[name];
  }

  #openInput() {
    return this.#withInput
      ? new Socket({ fd: 0, readable: true, writable: false, manualStart: true })
      : new ReadStream(null, { fd: 0, autoClose: false });
  }

  /** A file opened next takes the lowest number that is free. */
  #replace(fd, path, flags) {
    try {
      closeSync(fd);
    } catch {
      // It was closed.
    }
    const opened = openSync(path, flags);
    if (opened !== fd) closeSync(opened);
  }

  #dropOldInput() {
    const fd = openSync(`/proc/self/fd/${this.#kept[0]}`, constants.O_RDONLY | constants.O_NONBLOCK);
    try {
      const bytes = Buffer.alloc(DRAIN_BYTES);
      for (let round = 0; round < MAX_DRAINS && readSync(fd, bytes) > 0; round++);
    } catch {
      // Nothing more is there.
    } finally {
      closeSync(fd);
    }
  }
}

function identity(fd) {
  try {
    const { dev, ino } = fstatSync(fd);
    return `${dev}:${ino}`;
  } catch {
    return undefined;
  }
}
