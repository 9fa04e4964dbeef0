/** The programs of the session that have not ended: of other executions nothing is asked. */
import type { Executions } from '../executions/executions.ts';
import type { ExecutionRecord } from '../rows/records.ts';
import type { CallRow, ProgramRow, ProgramStore } from './store.ts';

export interface OpenProgram {
  record: ExecutionRecord;
  program: ProgramRow;
}

export class OpenPrograms {
  readonly #store: ProgramStore;
  readonly #executions: Executions;
  readonly #numbers: Set<number>;

  constructor(store: ProgramStore, executions: Executions) {
    this.#store = store;
    this.#executions = executions;
    const open = executions.open.map(({ n }) => n);
    this.#numbers = new Set(open.filter((n) => store.find(n) !== undefined));
  }

  add(n: number): void {
    this.#numbers.add(n);
  }

  /** Whether it was one of them. */
  remove(n: number): boolean {
    return this.#numbers.delete(n);
  }

  withExecution(executionId: string): ExecutionRecord | undefined {
    return this.#records.find((record) => record.executionId === executionId);
  }

  withNumber(n: number): OpenProgram | undefined {
    return this.all().find(({ record }) => record.n === n);
  }

  all(): OpenProgram[] {
    return this.#records.flatMap((record) => {
      const program = this.#store.find(record.n);
      return program === undefined ? [] : [{ record, program }];
    });
  }

  /** Calls that wait for somebody outside: the caller, or who has to allow them. */
  pendingCalls(): { record: ExecutionRecord; row: CallRow }[] {
    return this.#records.flatMap((record) =>
      this.#store.callsIn(record.n, ['pending', 'awaiting_approval']).map((row) => ({ record, row })),
    );
  }

  keptBytes(): number {
    return this.#records.reduce((sum, { n }) => sum + this.#store.keptBytes(n), 0);
  }

  get #records(): ExecutionRecord[] {
    return this.#executions.open.filter(({ n, status }) => this.#numbers.has(n) && status !== 'queued');
  }
}
