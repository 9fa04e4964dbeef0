/** Whether an attempt is mended, and what it has in common with former ones. Pure. */
import type { Execution } from '../../shared/execution.ts';
import type { RepairStop } from '../../shared/repair.ts';

/** Lines of the traceback that the model is given: the last ones name the place. */
const TRACEBACK_LINES = 40;
const MAX_LINE_CHARACTERS = 1_000;

export interface FormerAttempt {
  code: string;
  error: string | null;
}

/** Only what the program itself did wrong can be mended in it. */
export function isRepairable({ status }: Pick<Execution, 'status'>): boolean {
  return status === 'failed';
}

/** What an error is known by: addresses and numbers of lines may differ where it is the same. */
export function errorLine({ error, stderr }: Pick<Execution, 'error' | 'stderr'>): string {
  const line =
    error === null ? (stderr.trimEnd().split('\n').at(-1) ?? '') : `${error.name}: ${error.message}`;
  return line.split('\n')[0]?.slice(0, MAX_LINE_CHARACTERS) ?? '';
}

export function lastLines({ error, stderr }: Pick<Execution, 'error' | 'stderr'>): string {
  const text = error?.traceback !== undefined && error.traceback !== '' ? error.traceback : stderr;
  const lines = text.trimEnd().split('\n').slice(-TRACEBACK_LINES);
  return lines.map((line) => line.slice(0, MAX_LINE_CHARACTERS)).join('\n');
}

/** Why the next attempt is not made, where it would be one that was made. */
export function repetition(
  next: { code: string } | { error: string },
  former: readonly FormerAttempt[],
): RepairStop | undefined {
  if ('code' in next) {
    const same = former.some(({ code }) => normalised(code) === normalised(next.code));
    return same ? 'repeated_code' : undefined;
  }
  const same = former.some(({ error }) => error !== null && withoutNoise(error) === withoutNoise(next.error));
  return same ? 'repeated_error' : undefined;
}

/** Blanks at the ends of lines, and empty lines, make no other program. */
function normalised(code: string): string {
  return code
    .split('\n')
    .map((line) => line.trimEnd())
    .filter((line) => line !== '')
    .join('\n');
}

function withoutNoise(error: string): string {
  return error.replace(/0x[0-9a-f]+/gi, '0x').replace(/\bline \d+/g, 'line');
}
