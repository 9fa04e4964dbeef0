/** One run on the engine of Workflows, as the object that keeps its record sees it. */
import type { RunInstance, RunNamespace } from './run-namespace.ts';
import { forgetRun, isUnderWay, markUnderWay, takeUp } from './take-up.ts';

/** States of an instance in which nothing more comes of it. */
const OVER: ReadonlySet<string> = new Set(['errored', 'terminated', 'complete']);

export class EngineRun {
  readonly #namespace: RunNamespace;
  readonly #needsTakingUp: boolean;
  readonly #id: string;

  constructor(namespace: RunNamespace, run: { id: string; needsTakingUp: boolean }) {
    this.#namespace = namespace;
    this.#id = run.id;
    this.#needsTakingUp = run.needsTakingUp;
  }

  /** Resolves when it is under way, begun now or before. */
  async begin(tenant: string): Promise<void> {
    try {
      await this.#namespace.create({ id: this.#id, params: { tenant, id: this.#id } });
      markUnderWay(this.#id);
    } catch (error: unknown) {
      // An instance of this id is there already, which is what was wanted; anything else shows when it is looked at.
      if ((await this.#instance()) === undefined) throw error;
    }
  }

  /** Whether it goes on. To ask for it wakes one that nobody woke. */
  async goesOn(): Promise<boolean> {
    const instance = await this.#instance();
    if (instance === undefined || OVER.has((await instance.status()).status)) return false;
    if (this.#needsTakingUp && !isUnderWay(this.#id)) await takeUp(this.#id, instance);
    return true;
  }

  /** As often as wanted: one that has come to its end stays so. */
  async stop(): Promise<void> {
    forgetRun(this.#id);
    const instance = await this.#instance();
    if (instance === undefined || OVER.has((await instance.status()).status)) return;
    // It may come to its end just now.
    await instance.terminate().catch(() => undefined);
  }

  /** Its record says that it has ended. */
  forget(): void {
    forgetRun(this.#id);
  }

  async #instance(): Promise<RunInstance | undefined> {
    return this.#namespace.get(this.#id).catch(() => undefined);
  }
}
