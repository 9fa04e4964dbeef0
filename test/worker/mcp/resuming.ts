/** Calls over MCP whose streams are cut and gone on with: a host whose executions wait for the test, and a reader. */
import { afterEach, beforeEach, expect, vi } from 'vitest';
import * as z from 'zod';
import { SessionSchema } from '../../../shared/session.ts';
import type { ExecutionDouble } from '../../fixtures/host-double/execution-double.ts';
import type { HostDouble, Script } from '../../fixtures/host-double/host-double.ts';
import { tokenOf } from '../fixture-issuer.ts';
import { api } from '../harness/api.ts';
import { connectFakeHost, retireFakeHost } from '../harness/fake-host.ts';
import { call, eventsOf, openRpc, type RpcEvent, type RpcOptions, resume } from './rpc.ts';

export const VERSION = '2025-11-25';
export const OLDER = { 'Mcp-Protocol-Version': VERSION };

export const as = (sub: string, tenant = 'acme', more = {}) => tokenOf({ claims: { tenant, sub, ...more } });
export const alice = () => as('alice');
export const options = async (more: RpcOptions = {}): Promise<RpcOptions> => ({
  token: await alice(),
  ...more,
  headers: { ...OLDER, ...more.headers },
});

/** A session of alice for each test. `hold` runs until it is interrupted; whatever else, for as long as the test wants. */
export class Stage {
  #host: HostDouble | undefined;
  sessionId = '';
  running: ExecutionDouble[] = [];

  get host(): HostDouble {
    if (this.#host === undefined) throw new Error('the test has not begun');
    return this.#host;
  }

  async setUp(): Promise<void> {
    this.running = [];
    this.#host = await connectFakeHost({ script: this.#script });
    const created = await api('POST', '/v1/sessions', { token: await alice(), body: {} });
    this.sessionId = SessionSchema.parse(created.json).session_id;
  }

  async newestExecution(): Promise<ExecutionDouble> {
    await this.host.until(() => this.running.length > 0);
    const [execution] = this.running.slice(-1);
    if (execution === undefined) throw new Error('nothing runs');
    return execution;
  }

  readonly #script: Script = async (execution) => {
    this.running.push(execution);
    execution.started();
    if (execution.arguments.command === 'hold') {
      await execution.interrupted;
      await execution.finish({ status: 'interrupted', exit_code: null });
    }
  };
}

export function useStage(): Stage {
  const stage = new Stage();
  beforeEach(() => stage.setUp());
  afterEach(async () => {
    vi.useRealTimers();
    vi.restoreAllMocks();
    await retireFakeHost(stage.host);
  });
  return stage;
}

export function watched(id: number | string, name: string, args: Record<string, unknown>): object {
  const params = { name, arguments: args, _meta: { progressToken: 'p' } };
  return { ...call(id, name, args), params };
}

/** With progress, and the id 7. */
export function steps(args: Record<string, unknown>, command = 'steps'): object {
  return watched(7, 'shell', { command, ...args });
}

/** The stream of a call, event by event; what is read of it is kept. */
export class Reading {
  readonly events: RpcEvent[] = [];
  readonly #events: AsyncGenerator<RpcEvent>;

  constructor(response: Response) {
    this.#events = eventsOf(response);
  }

  async next(): Promise<RpcEvent> {
    const { value } = await this.#events.next();
    if (value === undefined) throw new Error('the stream has ended');
    this.events.push(value);
    return value;
  }

  async rest(): Promise<RpcEvent[]> {
    for await (const event of this.#events) this.events.push(event);
    return this.events;
  }

  async cut(): Promise<void> {
    await this.#events.return(undefined);
  }

  get lastId(): string | undefined {
    return this.events.findLast(({ id }) => id !== undefined)?.id;
  }
}

export async function begin(body: object, more?: RpcOptions): Promise<Reading> {
  const response = await openRpc(body, await options(more));
  expect(response.status).toBe(200);
  return new Reading(response);
}

export async function comeBack(id: string | undefined, more?: RpcOptions): Promise<Reading> {
  const response = await resume(id, await options(more));
  expect(response.status).toBe(200);
  expect(response.headers.get('Content-Type')).toBe('text/event-stream');
  return new Reading(response);
}

const ProgressSchema = z.object({ progressToken: z.literal('p'), progress: z.number(), message: z.string() });

export function progressIn(events: readonly RpcEvent[]): z.infer<typeof ProgressSchema>[] {
  return events.flatMap(({ message }) =>
    message?.method === 'notifications/progress' ? [ProgressSchema.parse(message.params)] : [],
  );
}

export const textIn = (events: readonly RpcEvent[]) =>
  progressIn(events)
    .map(({ message }) => message)
    .join('');

export function answersIn(events: readonly RpcEvent[]) {
  return events.flatMap(({ message }) => (message?.result === undefined ? [] : [message]));
}

/** One line for each event that was read, so that none of them are told together. */
export async function goOn(
  execution: ExecutionDouble,
  lines: readonly string[],
  reading?: Reading,
): Promise<void> {
  for (const line of lines) {
    await execution.write('stdout', line);
    await reading?.next();
  }
}
