/**
 * An execution as text for a model. A call that succeeded and gave one thing is that thing, as it is. Anything else is
 * a status line where it did not succeed, then what there is in labelled parts. docs/tools.md has the rules.
 */
import type { Execution, RichResult } from '../../shared/execution.ts';
import type { ExecutionStatus } from '../../shared/lifecycle.ts';
import { isSchema, without } from '../formats/json-schema.ts';
import { clip, headOf, MIN_CLIP_CHARACTERS, shares } from './clip.ts';

export const DEFAULT_MAX_CHARACTERS = 16_000;
/** Room for the handle to the whole and a little of both ends. */
export const MIN_MAX_CHARACTERS = 500;
export const MAX_MAX_CHARACTERS = 1_000_000;

/** In place of where the whole is, for a call whose session is gone. */
const NO_HANDLE = '[what is left out is gone with its session; a call in a session keeps it]';
const NOTHING = '(no output)';
/** Of an exception's message in the status line; the traceback has the rest. */
const MAX_MESSAGE_CHARACTERS = 200;
/** Rich results beyond these are counted only. */
const MAX_RESULTS = 8;
const MAX_LABEL_CHARACTERS = 40;
const MAX_NAME_CHARACTERS = 64;
/** Text that a model reads as it is; other text is markup for a browser. */
const READABLE = ['text/plain', 'text/markdown', 'text/latex', 'application/json'];

interface Part {
  label: string;
  text: string;
}

export interface TextOptions {
  /** Whether the execution can be read later; not when its session ended with it. */
  isKept?: boolean;
}

export function executionText(
  execution: Execution,
  maxCharacters: number,
  { isKept = true }: TextOptions = {},
): string {
  const handle = isKept ? handleOf(execution) : NO_HANDLE;
  const lead = leadOf(execution);
  const parts = partsOf(execution);
  const notes = notesOf(execution);
  const [only] = parts;
  if (lead.length === 0 && notes.length === 0 && parts.length <= 1) {
    return withHandle(handle, only?.text ?? NOTHING, maxCharacters);
  }
  return assembled({ lead, parts, notes, handle }, maxCharacters);
}

function withHandle(handle: string, text: string, maxCharacters: number): string {
  if (text.length <= maxCharacters) return text;
  return `${clip(text, maxCharacters - handle.length - 1)}\n${handle}`;
}

function assembled(
  { lead, parts, notes, handle }: { lead: string[]; parts: Part[]; notes: string[]; handle: string },
  maxCharacters: number,
): string {
  const around = [...lead, ...parts.map(({ label }) => `[${label}]`), ...notes, handle];
  // Each line has its end, and so has each part.
  const aroundCharacters = around.reduce((sum, line) => sum + line.length + 1, parts.length);
  const budget = maxCharacters - aroundCharacters;
  // Too little for a piece of each: a piece of the whole then.
  const isTight = budget < parts.length * MIN_CLIP_CHARACTERS;
  const budgets = shares(
    parts.map(({ text }) => text.length),
    isTight ? Number.MAX_SAFE_INTEGER : budget,
  );
  const written = parts.map(({ label, text }, index) => {
    const kept = clip(text, budgets[index] ?? 0);
    return `[${label}]\n${kept}${kept.endsWith('\n') ? '' : '\n'}`;
  });
  const isClipped = parts.some(({ text }, index) => text.length > (budgets[index] ?? 0));
  const lines = [...notes, ...(isClipped ? [handle] : [])];
  const whole = [...lead.map(line), ...written, ...lines.map(line)].join('').trimEnd();
  return withHandle(handle, whole, maxCharacters);
}

function line(text: string): string {
  return `${text}\n`;
}

/** Where the whole is. */
function handleOf({ session_id, execution_id }: Execution): string {
  return `[the whole: execution ${execution_id}, GET /v1/sessions/${session_id}/executions/${execution_id}]`;
}

function leadOf(execution: Execution): string[] {
  const { status, state_lost } = execution;
  return [
    ...(status === 'succeeded' ? [] : [`status: ${statusText(execution, status)}`]),
    ...(state_lost ? ['the session lost its state: variables and processes of earlier calls are gone'] : []),
  ];
}

function statusText(execution: Execution, status: ExecutionStatus): string {
  const reason = execution.reason === null ? '' : ` (${headOf(execution.reason, MAX_MESSAGE_CHARACTERS)})`;
  switch (status) {
    case 'failed':
      return `failed${causeOf(execution)}`;
    case 'timeout':
      return 'timeout, stopped at its deadline; what it gave until then is below';
    case 'interrupted':
      return `interrupted, stopped before its end${reason}`;
    case 'oom':
      return 'oom, killed by the memory limit';
    case 'crashed':
      return `crashed, the sandbox died${reason}`;
    case 'cancelled':
      return `cancelled, it never started${reason}`;
    case 'refused':
      // By the host, or by a person.
      return execution.error === null
        ? `refused by the host, nothing ran${reason}`
        : `refused, nothing ran${causeOf(execution)}`;
    case 'unknown':
      return `unknown, it was started and its end was not seen: it may have had effects${reason}`;
    case 'succeeded':
    case 'queued':
    case 'granted':
    case 'running':
    case 'waiting':
      return status;
  }
}

function causeOf({ error, exit_code, signal }: Execution): string {
  if (error !== null) {
    const message = error.message === '' ? '' : `: ${headOf(error.message, MAX_MESSAGE_CHARACTERS)}`;
    return `, ${headOf(error.name, MAX_NAME_CHARACTERS)}${message}`;
  }
  if (signal !== null) return `, ended by ${signal}`;
  return exit_code === null ? '' : `, exit code ${exit_code}`;
}

function partsOf(execution: Execution): Part[] {
  const { stdout, stderr, value, error, results } = execution;
  const parts: Part[] = [
    { label: 'stdout', text: stdout },
    { label: 'stderr', text: stderr },
    { label: 'value', text: value ?? '' },
    { label: 'answer', text: structuredText(execution) },
    ...results
      .slice(0, MAX_RESULTS)
      .flatMap((result, index) =>
        isReadable(result) ? [{ label: resultName(result, index), text: result.data }] : [],
      ),
    { label: 'traceback', text: error?.traceback ?? '' },
  ];
  return parts.filter(({ text }) => text !== '');
}

/** The answer as JSON. Of a file that was read as text the content is the value; the rest is said where it is cut. */
function structuredText({ structured, value }: Execution): string {
  if (structured === null || structured === undefined) return '';
  if (value === null) return JSON.stringify(structured);
  if (!isSchema(structured) || structured.truncated !== true) return '';
  return JSON.stringify(without(structured, ['content']));
}

function notesOf({ results }: Execution): string[] {
  const notes = results
    .slice(0, MAX_RESULTS)
    .flatMap((result, index) =>
      isReadable(result) ? [] : [`[${resultName(result, index)}: ${sizeOf(result)}]`],
    );
  const more = results.length - MAX_RESULTS;
  return more > 0 ? [...notes, `[${more} more results]`] : notes;
}

function isReadable({ mime }: RichResult): boolean {
  return READABLE.includes(mime);
}

function resultName({ mime }: RichResult, index: number): string {
  return headOf(`result ${index + 1}, ${mime}`, MAX_LABEL_CHARACTERS);
}

function sizeOf({ mime, data }: RichResult): string {
  if (mime.startsWith('text/') || mime === 'image/svg+xml') return `${data.length} characters`;
  const padding = data.endsWith('==') ? 2 : data.endsWith('=') ? 1 : 0;
  return `${Math.floor((data.length * 3) / 4) - padding} bytes`;
}
