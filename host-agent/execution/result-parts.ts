/** The answer of a tool as frames: `value`, `structured` and rich results in pieces, and an error that fits a header. */
import { CUT_MARK_BYTES, cutMark } from '../../shared/cut-mark.ts';
import { utf8 } from '../../shared/encoding.ts';
import type { ProgramError } from '../../shared/execution.ts';
import { MAX_FRAME_PAYLOAD_BYTES, MAX_RESULT_PARTS_BYTES, MAX_VALUE_BYTES } from '../../shared/limits.ts';
import type { ToolOutcome } from '../sandbox/port.ts';
import type { OutgoingFrame } from './uplink.ts';
import { incompleteSuffixLength } from './utf8-edge.ts';

type PartField = 'value' | 'structured' | 'result';

const MAX_RESULTS = 256;
const MAX_NOTE_BYTES = 512;
/** A frame header has at most 65,535 bytes, and the receipt of a `finished` frame needs its share. */
const MAX_ERROR_NAME_CHARS = 256;
const MAX_ERROR_MESSAGE_JSON_BYTES = 12 * 1024;
const MAX_ERROR_TRACEBACK_JSON_BYTES = 24 * 1024;

/** A result is whole or not there. One over the cap of all together is left out, and a text in its place says so. */
export function resultParts(executionId: string, outcome: ToolOutcome): OutgoingFrame[] {
  const frames: OutgoingFrame[] = [];
  const notesBytes = Math.min(outcome.results.length, MAX_RESULTS) * MAX_NOTE_BYTES;
  let leftBytes = MAX_RESULT_PARTS_BYTES - notesBytes;
  const add = (field: PartField, index: number, mime: string, bytes: Uint8Array): boolean => {
    if (bytes.length > leftBytes) return false;
    leftBytes -= bytes.length;
    for (const frame of pieces(executionId, { field, index, mime }, bytes)) frames.push(frame);
    return true;
  };
  const addNote = (index: number, text: string): void => {
    frames.push(...pieces(executionId, { field: 'result', index, mime: 'text/plain' }, utf8(text)));
  };
  if (outcome.value !== null) {
    add('value', 0, 'text/plain', boundedValue(outcome.value));
  }
  if (outcome.structured !== null && outcome.structured !== undefined) {
    add('structured', 0, 'application/json', utf8(JSON.stringify(outcome.structured)));
  }
  for (const [index, result] of outcome.results.slice(0, MAX_RESULTS).entries()) {
    const mime = result.mime.slice(0, 128);
    const bytes = utf8(result.data);
    if (index === MAX_RESULTS - 1 && outcome.results.length > MAX_RESULTS) {
      addNote(
        index,
        `[${outcome.results.length - index} results left out: a call has at most ${MAX_RESULTS}]`,
      );
    } else if (!add('result', index, mime, bytes)) {
      const limit = `value and results have at most ${MAX_RESULT_PARTS_BYTES} bytes together`;
      addNote(index, `[${mime} of ${bytes.length} bytes left out: ${limit}]`);
    }
  }
  return frames;
}

function* pieces(
  executionId: string,
  part: { field: PartField; index: number; mime: string },
  bytes: Uint8Array,
): Generator<OutgoingFrame> {
  let start = 0;
  do {
    const end = Math.min(start + MAX_FRAME_PAYLOAD_BYTES, bytes.length);
    const last = end === bytes.length;
    yield {
      frame: { type: 'part', execution_id: executionId, ...part, last },
      payload: bytes.subarray(start, end),
    };
    start = end;
  } while (start < bytes.length);
}

function boundedValue(value: string): Uint8Array {
  const bytes = utf8(value);
  if (bytes.length <= MAX_VALUE_BYTES) return bytes;
  const cut = bytes.subarray(0, MAX_VALUE_BYTES - CUT_MARK_BYTES);
  const kept = new TextDecoder().decode(cut.subarray(0, cut.length - incompleteSuffixLength(cut)));
  return utf8(kept + cutMark(kept.length, value.length));
}

/** Of a long traceback the end is kept: there stands what failed. */
export function boundedError(error: ProgramError | null): ProgramError | null {
  if (error === null) return null;
  return {
    name: error.name.slice(0, MAX_ERROR_NAME_CHARS),
    message: boundedText(error.message, MAX_ERROR_MESSAGE_JSON_BYTES, 'start'),
    traceback: boundedText(error.traceback, MAX_ERROR_TRACEBACK_JSON_BYTES, 'end'),
  };
}

function boundedText(text: string, maxJsonBytes: number, keep: 'start' | 'end'): string {
  let kept = text;
  for (let size = jsonBytes(kept); size > maxJsonBytes; size = jsonBytes(kept)) {
    const chars = Math.floor((kept.length * maxJsonBytes) / size) - 1;
    kept = keep === 'start' ? kept.slice(0, chars) : kept.slice(kept.length - chars);
  }
  if (kept.length === text.length) return text;
  return keep === 'start' ? `${kept}…` : `…${kept}`;
}

function jsonBytes(text: string): number {
  return Buffer.byteLength(JSON.stringify(text));
}
