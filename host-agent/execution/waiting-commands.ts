/** Execute grants that came while another execution was still ending: kept in order, bounded in number and bytes. */
import type { GrantClaims } from '../../shared/grant.ts';
import { MAX_QUEUED_EXECUTIONS } from '../../shared/limits.ts';

const MAX_WAITING_BYTES = 8 * 1024 * 1024;

export interface ExecuteCommand {
  claims: GrantClaims;
  token: string;
  payload: Uint8Array;
}

export class WaitingCommands {
  #commands: ExecuteCommand[] = [];
  #bytes = 0;

  /**
   * False where no more can wait. An execution waits once: of its grants the newest counts, since that one expires last.
   */
  push(command: ExecuteCommand): boolean {
    const place = this.#commands.findIndex(({ claims }) => claims.exec === command.claims.exec);
    const replaced = this.#commands[place];
    const bytes = this.#bytes + command.payload.length - (replaced?.payload.length ?? 0);
    if (replaced === undefined) {
      if (this.#commands.length >= MAX_QUEUED_EXECUTIONS || bytes > MAX_WAITING_BYTES) return false;
      this.#commands.push(command);
    } else {
      if (replaced.claims.seq > command.claims.seq) return true;
      this.#commands[place] = command;
    }
    this.#bytes = bytes;
    return true;
  }

  shift(): ExecuteCommand | undefined {
    const command = this.#commands.shift();
    this.#bytes -= command?.payload.length ?? 0;
    return command;
  }
}
