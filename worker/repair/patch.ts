/** How one attempt differs from the one before. */
import { createTwoFilesPatch } from 'diff';

const CONTEXT_LINES = 3;

export function patchOf(before: string, after: string): string {
  return createTwoFilesPatch('before', 'after', `${before}\n`, `${after}\n`, '', '', {
    context: CONTEXT_LINES,
  });
}
