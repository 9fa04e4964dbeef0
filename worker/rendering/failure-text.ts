/** A refused call as text for a model: what was wrong and where, so that the next call can be right. */
import type { Failure } from '../../shared/errors.ts';
import { headOf } from './clip.ts';

const MAX_DETAIL_CHARACTERS = 600;
const MAX_VIOLATIONS = 4;

export function failureText({ code, detail, violations = [] }: Failure): string {
  const lines = violations
    .slice(0, MAX_VIOLATIONS)
    .map(({ path, expected }) => `${headOf(path, 64)}: expected ${headOf(expected, 128)}`)
    .filter((text) => !detail.startsWith(text));
  return [`error: ${code}: ${headOf(detail, MAX_DETAIL_CHARACTERS)}`, ...lines].join('\n');
}
