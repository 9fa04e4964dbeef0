/** Execute grants that came while another execution was still ending: kept in order, bounded in number and bytes. */
import type { GrantClaims } from '../../shared/grant.ts';
import { MAX_QUEUED_EXECUTIONS } from '../../shared/limits.ts';

const MAX_WAITING_BYTES = 8 * 1024 * 1024;

export interface ExecuteCommand {
  claims: GrantClaims;
  token: string;
  payload: Uint8Array;
  /** Of the request that it is for, where the edge says so. */
  requestId?: string | undefined;
}

/** What waits in all lanes of a session together. */
export class WaitingBudget {
  commands = 0;
  bytes = 0;
}

export class WaitingCommands {
  readonly #budget: WaitingBudget;
  #commands: ExecuteCommand[] = [];

  constructor(budget: WaitingBudget) {
    this.#budget = budget;
  }

  /**
   * False where no more can wait. An execution waits once: of its grants the newest counts, since that one expires last.
   */
  push(command: ExecuteCommand): boolean {
    const place = this.#commands.findIndex(({ claims }) => claims.exec === command.claims.exec);
    const replaced = this.#commands[place];
    const bytes = this.#budget.bytes + command.payload.length - (replaced?.payload.length ?? 0);
    if (replaced === undefined) {
      if (this.#budget.commands >= MAX_QUEUED_EXECUTIONS || bytes > MAX_WAITING_BYTES) return false;
      this.#commands.push(command);
      this.#budget.commands += 1;
    } else {
      if (replaced.claims.seq > command.claims.seq) return true;
      this.#commands[place] = command;
    }
    this.#budget.bytes = bytes;
    return true;
  }

  shift(): ExecuteCommand | undefined {
    const command = this.#commands.shift();
    if (command === undefined) return undefined;
    this.#budget.commands -= 1;
    this.#budget.bytes -= command.payload.length;
    return command;
  }
}
