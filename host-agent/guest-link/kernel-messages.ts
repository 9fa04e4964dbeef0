/**
 * What kernels say on their control pair. A message is u32 length | u32 length of the head | head as JSON | texts in
 * UTF-8, one after the other. In the head of a result the length in bytes stands in the place of each long text; the
 * texts come in this order: value, message and traceback of the error, results. So little of what a guest sends is ever
 * parsed, and the rest is only cut to pieces.
 */
import { isUtf8 } from 'node:buffer';
import * as z from 'zod';
import {
  CallNumberSchema,
  MAX_CALL_ARGUMENTS_BYTES,
  MAX_TOOL_NAME_CHARACTERS,
} from '../../shared/code-mode.ts';
import { CUT_MARK_BYTES, cutMark } from '../../shared/cut-mark.ts';
import { MAX_RESULT_PARTS_BYTES, MAX_VALUE_BYTES } from '../../shared/limits.ts';
import type { GuestFailure } from './failure.ts';
import { LengthPrefixedDecoder, lengthPrefixed } from './length-prefixed.ts';

const HEAD_LENGTH_BYTES = 4;
const MAX_HEAD_BYTES = 64 * 1024;
const MAX_ERROR_TEXT_BYTES = 128 * 1024;
const MAX_RESULTS = 64;
export const MAX_KERNEL_MESSAGE_BYTES =
  HEAD_LENGTH_BYTES + MAX_HEAD_BYTES + MAX_VALUE_BYTES + 2 * MAX_ERROR_TEXT_BYTES + MAX_RESULT_PARTS_BYTES;

const TextLength = (maxBytes: number) => z.int().min(0).max(maxBytes);
const ResultHeadSchema = z.object({
  type: z.literal('result'),
  id: z.string().max(32),
  status: z.enum(['ok', 'error', 'interrupted']),
  value: TextLength(MAX_VALUE_BYTES).nullable(),
  /** Of the whole value where only its beginning is sent. */
  value_characters: z.int().min(0).nullable(),
  error: z
    .object({
      name: z.string().max(1024),
      message: TextLength(MAX_ERROR_TEXT_BYTES),
      traceback: TextLength(MAX_ERROR_TEXT_BYTES),
    })
    .nullable(),
  results: z
    .array(z.object({ mime: z.string().max(256), data: TextLength(MAX_RESULT_PARTS_BYTES) }))
    .max(MAX_RESULTS),
  exit_code: z.int().min(0).max(255).nullable(),
  cpu_ms: z.number().min(0),
});
const HeadSchema = z.discriminatedUnion('type', [
  z.object({ type: z.literal('ready'), version: z.string().max(64) }),
  z.object({ type: z.literal('stdin_ready'), id: z.string().max(32) }),
  z.object({
    type: z.literal('tool_call'),
    id: z.string().max(32),
    call: CallNumberSchema,
    name: z.string().min(1).max(MAX_TOOL_NAME_CHARACTERS),
    arguments: TextLength(MAX_CALL_ARGUMENTS_BYTES),
  }),
  z.object({ type: z.literal('waiting'), id: z.string().max(32), rests: z.boolean() }),
  ResultHeadSchema,
]);
type Head = z.infer<typeof HeadSchema>;
type ResultHead = z.infer<typeof ResultHeadSchema>;

export interface KernelResult {
  readonly type: 'result';
  readonly id: string;
  readonly status: 'ok' | 'error' | 'interrupted';
  /** Ends with a mark that says so where it is not whole. */
  readonly value: string | null;
  readonly error: { readonly name: string; readonly message: string; readonly traceback: string } | null;
  readonly results: readonly { readonly mime: string; readonly data: string }[];
  readonly exitCode: number | null;
  readonly cpuMs: number;
}
/** A program calls a tool; its arguments are JSON, if the guest is honest. */
export interface KernelToolCall {
  readonly type: 'tool_call';
  readonly id: string;
  readonly call: number;
  readonly name: string;
  readonly arguments: string;
}
export type KernelMessage =
  | { readonly type: 'ready' }
  | { readonly type: 'stdin_ready'; readonly id: string }
  | KernelToolCall
  /** All that the cell does is wait; `rests`: for tools alone. */
  | { readonly type: 'waiting'; readonly id: string; readonly rests: boolean }
  | KernelResult;

export function encodeKernelRequest(message: object): Buffer {
  return lengthPrefixed(Buffer.from(JSON.stringify(message), 'utf8'));
}

export class KernelMessages {
  readonly #decoder = new LengthPrefixedDecoder(MAX_KERNEL_MESSAGE_BYTES);
  readonly #onMessage: (message: KernelMessage) => GuestFailure | undefined;
  #failure: GuestFailure | undefined;

  /** `onMessage` says what is wrong with a message that cannot come now. */
  constructor(onMessage: (message: KernelMessage) => GuestFailure | undefined) {
    this.#onMessage = onMessage;
  }

  /** What came of a message that is not whole yet. */
  get pending(): Buffer {
    return this.#decoder.pending;
  }

  /** The failure that came with these bytes. After it nothing more is looked at. */
  push(bytes: Uint8Array): GuestFailure | undefined {
    if (this.#failure !== undefined) return undefined;
    const { bodies, failure } = this.#decoder.push(bytes);
    for (const body of bodies) {
      const message = parseMessage(body);
      this.#failure =
        message === undefined ? protocol('a message that is not the protocol') : this.#onMessage(message);
      if (this.#failure !== undefined) return this.#failure;
    }
    this.#failure = failure;
    return failure;
  }
}

export function protocol(message: string): GuestFailure {
  return { reason: 'protocol', message };
}

function parseMessage(body: Buffer): KernelMessage | undefined {
  if (body.length < HEAD_LENGTH_BYTES) return undefined;
  const headEnd = HEAD_LENGTH_BYTES + body.readUInt32BE(0);
  if (headEnd > body.length || headEnd > HEAD_LENGTH_BYTES + MAX_HEAD_BYTES) return undefined;
  const head = parseHead(body.subarray(HEAD_LENGTH_BYTES, headEnd));
  const texts = new Texts(body.subarray(headEnd));
  if (head === undefined) return undefined;
  const message = messageOf(head, texts);
  return texts.isSpent ? message : undefined;
}

function messageOf(head: Head, texts: Texts): KernelMessage {
  if (head.type === 'result') return resultOf(head, texts);
  if (head.type !== 'tool_call') return head;
  return { ...head, name: head.name.toWellFormed(), arguments: texts.take(head.arguments) };
}

function parseHead(bytes: Buffer): Head | undefined {
  try {
    return HeadSchema.safeParse(JSON.parse(bytes.toString('utf8'))).data;
  } catch {
    return undefined;
  }
}

function resultOf(head: ResultHead, texts: Texts): KernelResult {
  const value = head.value === null ? null : texts.take(head.value);
  return {
    type: 'result',
    id: head.id,
    status: head.status,
    value: value === null || head.value_characters === null ? value : marked(value, head.value_characters),
    error:
      head.error === null
        ? null
        : {
            name: head.error.name.toWellFormed(),
            message: texts.take(head.error.message),
            traceback: texts.take(head.error.traceback),
          },
    results: head.results.map(({ mime, data }) => ({ mime: mime.toWellFormed(), data: texts.take(data) })),
    exitCode: head.exit_code,
    cpuMs: head.cpu_ms,
  };
}

/** The kernel leaves room for the mark; one that does not loses its last characters for it. */
function marked(value: string, allCharacters: number): string {
  const room = MAX_VALUE_BYTES - CUT_MARK_BYTES;
  const kept = Buffer.byteLength(value) <= room ? value : value.slice(0, Math.floor(room / 4)).toWellFormed();
  let keptCharacters = kept.length;
  for (const _surrogatePair of kept.matchAll(/[\u{10000}-\u{10ffff}]/gu)) keptCharacters--;
  return kept + cutMark(keptCharacters, Math.max(keptCharacters, allCharacters));
}

class Texts {
  readonly #bytes: Buffer;
  #at = 0;
  #isBroken = false;

  constructor(bytes: Buffer) {
    this.#bytes = bytes;
  }

  take(length: number): string {
    const bytes = this.#bytes.subarray(this.#at, this.#at + length);
    this.#at += length;
    if (bytes.length < length || !isUtf8(bytes)) this.#isBroken = true;
    return this.#isBroken ? '' : bytes.toString('utf8');
  }

  /** Whether every byte was taken, and was what it should be. */
  get isSpent(): boolean {
    return !this.#isBroken && this.#at === this.#bytes.length;
  }
}
