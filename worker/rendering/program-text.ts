/** A program that waits, as text for a model: for whom, and what goes on when. */
import type { Program } from '../../shared/code-mode.ts';

export function waitingText(
  { program_id, pending, calls }: Pick<Program, 'program_id' | 'pending' | 'calls'>,
  answering: string,
): string {
  const asks = pending.map((call) => JSON.stringify(call)).join('\n');
  if (pending.length > 0) {
    return `program ${program_id} waits for ${pending.length} of your tools; ${answering}:\n${asks}`;
  }
  const toAllow = calls.filter(({ status }) => status === 'awaiting_approval').length;
  return `program ${program_id} waits for ${toAllow} approvals; it goes on by itself when they are decided, and code with this program_id gives what became of it`;
}
