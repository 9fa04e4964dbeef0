/**
 * Finds what is on the machine under this agent's name and belongs to none of its sandboxes: processes of runsc, control
 * groups, folders. What is seen twice without an owner is removed, so that nothing is taken that is only being made.
 */
import { readdir } from 'node:fs/promises';
import type { Log } from '../logging/log.ts';
import { killProcess } from '../process/process-table.ts';
import type { Engine } from '../sandbox/engine.ts';
import { removeRemains } from '../sandbox/remains.ts';

export class Strays {
  readonly #engine: Engine;
  readonly #log: Log;
  #suspects: ReadonlySet<string> = new Set();

  constructor(engine: Engine, log: Log) {
    this.#engine = engine;
    this.#log = log;
  }

  /** Gives the ids of what was removed. Never rejects for what cannot be removed: it is tried again by the next sweep. */
  async sweep(isOwned: (sandboxId: string) => boolean): Promise<string[]> {
    const found = await this.#found();
    const unowned = new Set([...found].filter((id) => !isOwned(id)));
    const strays = [...unowned].filter((id) => this.#suspects.has(id));
    this.#suspects = unowned;
    const removed: string[] = [];
    for (const id of strays) {
      // It may have found an owner while others were removed.
      if (isOwned(id) || !(await this.#remove(id))) continue;
      this.#log.warn({ event: 'stray_removed', sandbox_id: id });
      removed.push(id);
    }
    return removed;
  }

  async #found(): Promise<Set<string>> {
    const { runsc, cgroups, bundles } = this.#engine;
    const processes = await runsc.sandboxProcesses();
    return new Set([
      ...processes.map(({ sandboxId }) => sandboxId),
      ...(await cgroups.list()),
      ...(await readdir(bundles.dir)),
    ]);
  }

  async #remove(sandboxId: string): Promise<boolean> {
    for (const process of await this.#engine.runsc.sandboxProcesses()) {
      if (process.sandboxId === sandboxId) killProcess(process.pid);
    }
    return removeRemains(this.#engine, sandboxId, this.#log);
  }
}
