/** Values and errors as text, bounded, and without the frames of the kernel. */
import { inspect, types } from 'node:util';

/** The host marks a value that was cut. */
const MAX_VALUE_BYTES = 1024 * 1024 - 64;
const MAX_VALUE_CHARACTERS = 4 * MAX_VALUE_BYTES;
const MAX_NAME_BYTES = 256;
const MAX_MESSAGE_BYTES = 16 * 1024;
const MAX_TRACEBACK_BYTES = 64 * 1024;
const KERNEL_FOLDER = new URL('.', import.meta.url).href;

/** What `process.exit` throws, so that it ends the cell and not the session. */
export class ExitRequest {
  constructor(code) {
    this.code = code;
  }
}

/** The text of a value, and how many characters it has where that is not all of it. */
export function valueText(value) {
  const whole = inspect(value, { depth: 4, maxStringLength: MAX_VALUE_CHARACTERS });
  const text = shorten(whole, MAX_VALUE_BYTES);
  if (text === whole) return { text, characters: null };
  let characters = 0;
  for (const _ of whole) characters += 1;
  return { text, characters };
}

/** The text within so many bytes of UTF-8. */
export function shorten(text, maxBytes = MAX_TRACEBACK_BYTES) {
  if (text.length * 3 <= maxBytes) return text;
  const bytes = Buffer.from(text, 'utf8');
  if (bytes.length <= maxBytes) return text;
  let end = maxBytes;
  while ((bytes[end] & 0xc0) === 0x80) end -= 1;
  return bytes.toString('utf8', 0, end);
}

/** `place` says where in a cell that does not parse. */
export function describeError(error, cellName, place) {
  if (!types.isNativeError(error) && !(error instanceof Error)) {
    const text = safely(() => inspect(error), '<unprintable value>');
    return described('NonError', text, `Uncaught ${text}`);
  }
  const name = safely(() => String(error.name), 'Error');
  const message = safely(() => String(error.message), '<unprintable message>');
  const stack = safely(() => inspect(error), `${name}: ${message}`);
  const inCell = error instanceof SyntaxError ? placeText(place, cellName) : '';
  return described(name, message, withoutKernel(stack) + inCell);
}

function described(name, message, traceback) {
  return {
    name: shorten(name, MAX_NAME_BYTES),
    message: shorten(message, MAX_MESSAGE_BYTES),
    traceback: shorten(traceback, MAX_TRACEBACK_BYTES),
  };
}

/** Frames of the kernel, and those of Node that stand below them. */
function withoutKernel(stack) {
  let inKernel = false;
  const kept = stack.split('\n').filter((line) => {
    const isFrame = /^\s+at /u.test(line);
    inKernel =
      isFrame &&
      (line.includes(KERNEL_FOLDER) ||
        line.includes('node:inspector') ||
        (inKernel && line.includes('node:')));
    return !inKernel;
  });
  return kept.join('\n');
}

function placeText(place, cellName) {
  if (place === undefined || place.url === cellName) return '';
  return `\n    at ${cellName}:${place.line}:${place.column}`;
}

function safely(read, fallback) {
  try {
    return read();
  } catch {
    return fallback;
  }
}
