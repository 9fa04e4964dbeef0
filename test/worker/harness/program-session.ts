import { env } from 'cloudflare:workers';
import { afterEach, beforeEach, expect, vi } from 'vitest';
import { type Program, ProgramSchema } from '../../../shared/code-mode.ts';
import { SessionSchema } from '../../../shared/session.ts';
import type { ExecutionDouble } from '../../fixtures/host-double/execution-double.ts';
import type { HostDouble } from '../../fixtures/host-double/host-double.ts';
import { PATIENCE_MS } from '../../patience.ts';
import { ALL_SCOPES, tokenOf } from '../fixture-issuer.ts';
import { type ApiOptions, api } from './api.ts';
import { ASK } from './example-tools.ts';
import { connectFakeHost, retireFakeHost } from './fake-host.ts';

export let host: HostDouble;
export let sessionId: string;
export let running: ExecutionDouble[];
let tenants = 0;
export let tenant: string;

export const token = (scope = ALL_SCOPES) => tokenOf({ claims: { tenant, scope } });
export const path = () => `/v1/sessions/${sessionId}/programs`;

export async function register(tool: object) {
  const answer = await api('POST', '/v1/tools', { token: await token(), body: tool });
  expect(answer.status, answer.text).toBe(201);
}

export async function post(body: object, options: ApiOptions = {}) {
  return api('POST', path(), {
    token: await token(),
    body: { language: 'python', code: 'x', ...body },
    ...options,
  });
}

export async function begin(body: object = {}): Promise<{ program: Program; execution: ExecutionDouble }> {
  const count = running.length;
  const answer = await post({ detach: true, ...body });
  expect(answer.status, answer.text).toBe(202);
  await host.until(() => running.length > count);
  const execution = running.at(-1);
  if (execution === undefined) throw new Error('not started');
  return { program: ProgramSchema.parse(answer.json), execution };
}

export async function get(id: string): Promise<Program> {
  return ProgramSchema.parse((await api('GET', `${path()}/${id}`, { token: await token() })).json);
}

export async function until(id: string, condition: (program: Program) => boolean): Promise<Program> {
  const waiting = { timeout: PATIENCE_MS, interval: 10 };
  return vi.waitUntil(async () => {
    const program = await get(id);
    return condition(program) ? program : undefined;
  }, waiting);
}

export async function reply(id: string, results: object[], more: object = { detach: true }) {
  return api('POST', `${path()}/${id}/tool_results`, { token: await token(), body: { results, ...more } });
}

export const isWaiting = (program: Program) => program.status === 'waiting' && program.pending.length === 1;
export const pending = (count: number) => (program: Program) => program.pending.length === count;

export function stubOf() {
  return env.SESSION.get(env.SESSION.idFromName(`${tenant}:${sessionId}`));
}

/** Sets it up before each test of a file. */
export function useProgramSession(): void {
  beforeEach(async () => {
    running = [];
    tenants += 1;
    tenant = `programs-${tenants}`;
    host = await connectFakeHost({
      script: (execution) => {
        execution.started();
        running.push(execution);
      },
    });
    const created = await api('POST', '/v1/sessions', { token: await token(), body: {} });
    sessionId = SessionSchema.parse(created.json).session_id;
    await register(ASK);
  });

  afterEach(async () => {
    vi.useRealTimers();
    vi.restoreAllMocks();
    await retireFakeHost(host);
  });
}
