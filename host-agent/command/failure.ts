/** How a command ends that could not do what it was asked: one line, and an exit code. */
import type { Failure } from '../../shared/errors.ts';

export const EXIT_FAILED = 1;
/** What was typed is wrong. */
export const EXIT_USAGE = 2;

export class CommandFailure extends Error {
  override readonly name = 'CommandFailure';
  readonly exitCode: number;

  constructor(message: string, exitCode = EXIT_FAILED) {
    super(message);
    this.exitCode = exitCode;
  }
}

export function wrongUse(message: string): CommandFailure {
  return new CommandFailure(message, EXIT_USAGE);
}

export function fromFailure({ detail }: Failure): CommandFailure {
  return new CommandFailure(detail);
}
