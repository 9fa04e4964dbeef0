/** A machine that systemd runs, with what a host is installed from. */
import type { Ended } from '../fixtures/private-machine.ts';

export interface ServiceMachine {
  /** How `cp` brings it what was made before. */
  readonly copyFlags: readonly string[];
  run(argv: readonly string[]): Promise<Ended>;
  stop(): Promise<void>;
}
