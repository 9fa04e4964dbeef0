/**
 * Whose end it was that the kernel killed a process for memory. Calls of different tools share the counter of their
 * sandbox: the first that fails after a kill has it.
 */
export class MemoryKills {
  #claimed = 0;

  /** A call begins. What was killed while none ran is nobody's. */
  begin(kills: number, othersRun: boolean): void {
    if (!othersRun) this.#claimed = kills;
  }

  /** Whether there was a kill that no call has claimed: all until now are claimed by this one. */
  claim(kills: number): boolean {
    const isNew = kills > this.#claimed;
    this.#claimed = Math.max(this.#claimed, kills);
    return isNew;
  }
}
