/**
 * The executions of one session: those of one tool one after the other, those of different tools at the same time. Their
 * receipts are one chain, in the order in which they end.
 */
import { type Failure, failure } from '../../shared/errors.ts';
import { type ToolName, ToolNameSchema } from '../../shared/tool.ts';
import type { CarriedRun } from './carried.ts';
import { ExecutionRunner, type LiveExecution, type RunnerOptions } from './runner.ts';
import { Turns } from './turns.ts';
import { type ExecuteCommand, WaitingBudget } from './waiting-commands.ts';

/** What is no tool of this host is refused there, and in order too. */
const NO_TOOL = 'none';

export class ExecutionLanes {
  readonly #options: Omit<RunnerOptions, 'budget' | 'endings'>;
  readonly #lanes = new Map<string, ExecutionRunner>();
  readonly #budget = new WaitingBudget();
  readonly #endings = new Turns();
  #isOver = false;

  constructor(options: Omit<RunnerOptions, 'budget' | 'endings'>) {
    this.#options = options;
  }

  /** Settles when the execution is started, waits, or is refused. */
  async execute(command: ExecuteCommand): Promise<Failure | undefined> {
    if (this.#isOver) return failure('sandbox_failed', 'the sandbox is gone');
    const tool = ToolNameSchema.safeParse(command.claims.tool);
    return this.#lane(tool.success ? tool.data : NO_TOOL).execute(command);
  }

  /** Whether the end of this execution was not told yet. */
  isUnderWay(executionId: string): boolean {
    return [...this.#lanes.values()].some((lane) => lane.isUnderWay(executionId));
  }

  /** What runs, if it is this execution; whatever runs, for null. */
  live(executionId: string | null): LiveExecution[] {
    return [...this.#lanes.values()].flatMap((lane) => lane.live(executionId) ?? []);
  }

  /** Settles when no call of a tool other than these is being started, runs, or is being told. */
  async settledBut(tools: readonly string[]): Promise<void> {
    const others = [...this.#lanes].filter(([tool]) => !tools.includes(tool));
    await Promise.all(others.map(([, lane]) => lane.settled()));
  }

  /** The call of this tool that runs, as another host goes on with it; undefined where none does. */
  carry(tool: ToolName, stdinIsCarried: boolean): CarriedRun | undefined {
    return this.#lanes.get(tool)?.carry(stdinIsCarried);
  }

  /** What runs has moved: its end here is none, and nothing is said of it. */
  handOff(): void {
    this.#isOver = true;
    for (const lane of this.#lanes.values()) lane.handOff();
  }

  /** Goes on with what ran at a checkpoint, and is in the journal as such. */
  adopt(...call: Parameters<ExecutionRunner['adopt']>): void {
    this.#lane(call[0].tool).adopt(...call);
  }

  /** Nothing is started from now on. Settles when what runs has ended and was told. */
  async end(): Promise<void> {
    this.#isOver = true;
    await Promise.all([...this.#lanes.values()].map((lane) => lane.end()));
  }

  #lane(name: string): ExecutionRunner {
    const known = this.#lanes.get(name);
    if (known !== undefined) return known;
    const lane = new ExecutionRunner({ ...this.#options, budget: this.#budget, endings: this.#endings });
    this.#lanes.set(name, lane);
    return lane;
  }
}
