/** Tells the edge how much of an execution's input was taken, so that it can refuse what would find no room here. */
import type { Uplink } from './uplink.ts';

export class StdinCredit {
  readonly #executionId: string;
  readonly #uplink: Uplink;
  readonly #isCurrent: () => boolean;
  #takenBytes = 0;
  #isWaiting = false;

  /** Once the execution is no longer current nothing is said of its input. */
  constructor(executionId: string, uplink: Uplink, isCurrent: () => boolean) {
    this.#executionId = executionId;
    this.#uplink = uplink;
    this.#isCurrent = isCurrent;
  }

  /** A total: where the edge acknowledges nothing, only the last one has to be told, and waits. */
  readonly taken = (totalBytes: number): void => {
    this.#takenBytes = totalBytes;
    if (this.#isWaiting) return;
    if (!this.#uplink.isOverfull) {
      this.#tell();
      return;
    }
    this.#isWaiting = true;
    void this.#uplink.waitForRoom(0, this.#executionId).then(() => {
      this.#isWaiting = false;
      this.#tell();
    });
  };

  #tell(): void {
    if (!this.#isCurrent()) return;
    this.#uplink.send({ type: 'stdin_taken', execution_id: this.#executionId, bytes: this.#takenBytes });
  }
}
