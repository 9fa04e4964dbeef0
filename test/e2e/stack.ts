/** One real stack a test file: gateway on workerd, host agent, runsc; with a check that nothing of it is left. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect } from 'vitest';
import { setUp } from '../../host-agent/setup/setup.ts';
import { silentProgress } from '../../host-agent/setup/step.ts';
import type { TokenOverrides } from '../../scripts/development/access-token.ts';
import { type Stack, startStack } from '../../scripts/development/stack.ts';
import { locations } from '../../scripts/locations.ts';
import { PATIENCE_MS } from '../patience.ts';
import { ApiClient, type SessionClient } from './client.ts';
import { leftoversOf } from './leftovers.ts';
import { until } from './until.ts';

/** Set-up on a fresh machine builds the image; when it was done before it takes about a second. */
const START_TIMEOUT_MS = 600_000;
const STOP_TIMEOUT_MS = 180_000;
/** Two stacks and their tests share this machine: a gateway that shed load for being late would refuse what is tested. */
export const NEVER_LATE = { OVERLOAD_LATE_MS: '60000' };
/** Also the bound after a crash: an orphan may live this long once the host is ready. */
export const ORPHAN_GRACE_MS = 10_000;

export class TestStack {
  readonly stack: Stack;
  readonly api: ApiClient;

  constructor(stack: Stack, api: ApiClient) {
    this.stack = stack;
    this.api = api;
  }

  open(body: Record<string, unknown> = {}): Promise<SessionClient> {
    return this.api.open(body);
  }

  /** A client whose token differs from the usual one. */
  async clientWith(overrides: TokenOverrides): Promise<ApiClient> {
    return new ApiClient(this.stack.url, await this.stack.token(overrides));
  }

  hostAgentPid(): number {
    const pid = this.stack.hostAgentPid();
    if (pid === undefined) throw new Error('the host agent does not run');
    return pid;
  }

  /** Kills workerd and waits until the edge answers again and has its host. */
  async restartEdge(): Promise<void> {
    const former = this.stack.workerdPid();
    this.stack.crashWorkerd();
    await until('workerd is started again', PATIENCE_MS, () =>
      this.stack.workerdPid() === former ? undefined : true,
    );
    await this.stack.ready();
  }
}

/** Starts a stack before the file's tests and stops it after them; what is left of it then fails the file. */
export function useStack(
  hostAgentEnvironment: (stateDir: string) => NodeJS.ProcessEnv = () => ({}),
  bindings: () => Promise<Record<string, string>> = async () => ({}),
): () => TestStack {
  let running: TestStack | undefined;
  let stateDir: string | undefined;

  beforeAll(async () => {
    stateDir = await mkdtemp(join(tmpdir(), 'sandgate-e2e-'));
    const places = { ...locations(process.env), stateDir };
    const installation = await setUp(places, process.env, silentProgress);
    const stack = await startStack({
      locations: places,
      installation,
      port: 0,
      hostAgentEnvironment: hostAgentEnvironment(stateDir),
      bindings: { ...NEVER_LATE, ...(await bindings()) },
    });
    running = new TestStack(stack, new ApiClient(stack.url, await stack.token()));
  }, START_TIMEOUT_MS);

  afterAll(async () => {
    await running?.stack.stop();
    if (stateDir === undefined) return;
    const left = await leftoversOf(stateDir);
    expect(left, 'what a stopped stack leaves on the machine').toEqual({
      processes: [],
      mounts: [],
      cgroups: [],
    });
    await rm(stateDir, { recursive: true, force: true });
  }, STOP_TIMEOUT_MS);

  return () => {
    if (running === undefined) throw new Error('the stack is not running');
    return running;
  };
}

/** One session for all tests of a `describe`, which so also see what a former call left behind. */
export function useSession(stack: () => TestStack): () => SessionClient {
  let session: SessionClient | undefined;
  beforeAll(async () => {
    session = await stack().open();
  });
  afterAll(async () => {
    await session?.delete();
  });
  return () => {
    if (session === undefined) throw new Error('the session is not open');
    return session;
  };
}
