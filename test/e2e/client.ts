/** A small typed client of the REST API: every answer is parsed by the shared schemas, every refusal is a `Refused`. */
import * as z from 'zod';
import { type Envelope, EnvelopeSchema } from '../../shared/dsse.ts';
import { type Execution, ExecutionSchema } from '../../shared/execution.ts';
import { ExecutionIdSchema } from '../../shared/ids.ts';
import { isTerminal } from '../../shared/lifecycle.ts';
import { PROBLEM_MEDIA_TYPE, type Problem, ProblemSchema } from '../../shared/problem.ts';
import { ReceiptExportSchema } from '../../shared/receipt-verify.ts';
import { type Session, SessionListSchema, SessionSchema } from '../../shared/session.ts';
import type { ToolName } from '../../shared/tool.ts';
import { EventStream } from './event-stream.ts';
import { until } from './until.ts';

export interface Answer {
  status: number;
  headers: Headers;
  text: string;
  bodyBytes: number;
}

/** What the gateway refused, with the problem it gave. */
export class Refused extends Error {
  override readonly name = 'Refused';
  readonly status: number;
  readonly headers: Headers;
  readonly problem: Problem;

  constructor(answer: Answer, problem: Problem) {
    super(`${answer.status} ${problem.code}: ${problem.detail} ${JSON.stringify(problem.violations ?? [])}`);
    this.status = answer.status;
    this.headers = answer.headers;
    this.problem = problem;
  }
}

export interface RequestOptions {
  body?: unknown;
  headers?: Record<string, string>;
  signal?: AbortSignal;
}

export interface CallOptions {
  timeoutMs?: number;
  encoding?: 'utf-8' | 'base64';
  idempotencyKey?: string;
  signal?: AbortSignal;
}

const ExecutionListSchema = z.object({
  executions: z.array(ExecutionSchema),
  next_cursor: z.string().nullable(),
});
const InterruptedSchema = z.object({ execution_id: ExecutionIdSchema.nullable() });

export class ApiClient {
  readonly url: string;
  readonly token: string;

  constructor(url: string, token: string) {
    this.url = url.replace(/\/$/, '');
    this.token = token;
  }

  /** The answer as it is, refused or not. */
  async request(method: string, path: string, options: RequestOptions = {}): Promise<Answer> {
    const response = await this.fetch(method, path, options);
    const bytes = new Uint8Array(await response.arrayBuffer());
    const text = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes);
    return { status: response.status, headers: response.headers, text, bodyBytes: bytes.length };
  }

  /** The body of a 2xx answer, parsed; anything else throws `Refused`. */
  async json<Output>(schema: z.ZodType<Output>, method: string, path: string, options: RequestOptions = {}) {
    const answer = accepted(await this.request(method, path, options));
    return { ...answer, value: schema.parse(JSON.parse(answer.text)) };
  }

  fetch(method: string, path: string, options: RequestOptions = {}): Promise<Response> {
    return fetch(`${this.url}${path}`, {
      method,
      headers: {
        authorization: `Bearer ${this.token}`,
        ...(options.body === undefined ? {} : { 'content-type': 'application/json' }),
        ...options.headers,
      },
      ...(options.body === undefined ? {} : { body: JSON.stringify(options.body) }),
      ...(options.signal === undefined ? {} : { signal: options.signal }),
    });
  }

  async open(body: Record<string, unknown> = {}, headers: Record<string, string> = {}) {
    const answer = await this.json(SessionSchema, 'POST', '/v1/sessions', { body, headers });
    return new SessionClient(this, answer.value);
  }

  async sessions(cursor?: string) {
    const query = cursor === undefined ? '' : `?cursor=${encodeURIComponent(cursor)}`;
    return (await this.json(SessionListSchema, 'GET', `/v1/sessions${query}`)).value;
  }
}

/** One session, with one method for each thing a test does to it. */
export class SessionClient {
  readonly api: ApiClient;
  readonly opened: Session;
  readonly id: string;
  readonly path: string;

  constructor(api: ApiClient, opened: Session) {
    this.api = api;
    this.opened = opened;
    this.id = opened.session_id;
    this.path = `/v1/sessions/${opened.session_id}`;
  }

  sh(command: string, options: CallOptions = {}): Promise<Execution> {
    return this.execute('shell', { command }, options);
  }

  py(code: string, options: CallOptions = {}): Promise<Execution> {
    return this.execute('python', { code }, options);
  }

  file(callArguments: Record<string, unknown>, options: CallOptions = {}): Promise<Execution> {
    return this.execute('file', callArguments, options);
  }

  async execute(tool: ToolName, callArguments: Record<string, unknown>, options: CallOptions = {}) {
    return (await this.executeRaw(tool, callArguments, options)).value;
  }

  /** The same with the status, headers and size of the answer. */
  executeRaw(tool: ToolName, callArguments: Record<string, unknown>, options: CallOptions = {}) {
    return this.api.json(ExecutionSchema, 'POST', `${this.path}/execute`, {
      body: callBody(tool, callArguments, options),
      ...callRequest(options),
    });
  }

  /** Starts a call and returns at once with its execution. */
  async detach(tool: ToolName, callArguments: Record<string, unknown>, options: CallOptions = {}) {
    const answer = await this.api.json(ExecutionSchema, 'POST', `${this.path}/execute`, {
      body: { ...callBody(tool, callArguments, options), detach: true },
      ...callRequest(options),
    });
    if (answer.status !== 202) throw new Error(`a detached call answers 202, this one ${answer.status}`);
    return answer.value;
  }

  stream(tool: ToolName, callArguments: Record<string, unknown>, options: CallOptions = {}) {
    return this.openStream('POST', `${this.path}/execute`, {
      body: { ...callBody(tool, callArguments, options), stream: true },
      ...callRequest(options),
    });
  }

  /** The event stream of an execution from its beginning, or after an event. */
  events(executionId: string, lastEventId?: string): Promise<EventStream> {
    return this.openStream('GET', `${this.path}/executions/${executionId}/events`, {
      headers: lastEventId === undefined ? {} : { 'last-event-id': lastEventId },
    });
  }

  private async openStream(method: string, path: string, options: RequestOptions): Promise<EventStream> {
    const abort = new AbortController();
    const response = await this.api.fetch(method, path, {
      ...options,
      headers: { ...options.headers, accept: 'text/event-stream' },
      signal: abort.signal,
    });
    if (!response.ok || response.body === null) {
      const text = await response.text();
      accepted({ status: response.status, headers: response.headers, text, bodyBytes: text.length });
      throw new Error(`${method} ${path} gave no event stream`);
    }
    return new EventStream(response, abort);
  }

  async describe(): Promise<Session> {
    return (await this.api.json(SessionSchema, 'GET', this.path)).value;
  }

  async executions(cursor?: string) {
    const query = cursor === undefined ? '' : `?cursor=${encodeURIComponent(cursor)}`;
    return (await this.api.json(ExecutionListSchema, 'GET', `${this.path}/executions${query}`)).value;
  }

  async execution(executionId: string): Promise<Execution> {
    return (await this.api.json(ExecutionSchema, 'GET', `${this.path}/executions/${executionId}`)).value;
  }

  /** Waits until the execution has its terminal status. */
  ended(executionId: string, withinMs: number): Promise<Execution> {
    return until(`execution ${executionId} is terminal`, withinMs, async () => {
      const execution = await this.execution(executionId);
      return isTerminal(execution.status) ? execution : undefined;
    });
  }

  async receipt(executionId: string): Promise<Envelope> {
    const path = `${this.path}/executions/${executionId}/receipt`;
    return (await this.api.json(EnvelopeSchema, 'GET', path)).value;
  }

  async receipts() {
    return (await this.api.json(ReceiptExportSchema, 'GET', `${this.path}/receipts`)).value;
  }

  async interrupt(executionId?: string) {
    const body = executionId === undefined ? {} : { execution_id: executionId };
    return (await this.api.json(InterruptedSchema, 'POST', `${this.path}/interrupt`, { body })).value;
  }

  async delete(): Promise<Answer> {
    return accepted(await this.api.request('DELETE', this.path));
  }
}

function callBody(tool: ToolName, callArguments: Record<string, unknown>, options: CallOptions) {
  return {
    tool_name: tool,
    arguments: callArguments,
    ...(options.timeoutMs === undefined ? {} : { timeout_ms: options.timeoutMs }),
    ...(options.encoding === undefined ? {} : { encoding: options.encoding }),
  };
}

function callRequest(options: CallOptions): Pick<RequestOptions, 'headers' | 'signal'> {
  return {
    headers: options.idempotencyKey === undefined ? {} : { 'idempotency-key': options.idempotencyKey },
    ...(options.signal === undefined ? {} : { signal: options.signal }),
  };
}

function accepted(answer: Answer): Answer {
  if (answer.status >= 200 && answer.status < 300) return answer;
  const type = answer.headers.get('content-type') ?? '';
  if (!type.startsWith(PROBLEM_MEDIA_TYPE)) {
    throw new Error(`a refusal must be ${PROBLEM_MEDIA_TYPE}: ${answer.status} ${type} ${answer.text}`);
  }
  throw new Refused(answer, ProblemSchema.parse(JSON.parse(answer.text)));
}
