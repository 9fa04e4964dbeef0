/** The real gateway, and agents of this repository in this process whose sandboxes are scripted: the links are real. */
import { hash } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type Agent, type AgentOptions, startAgent } from '../../host-agent/edge/agent.ts';
import { SILENT_LOG } from '../../host-agent/logging/log.ts';
import { setUp } from '../../host-agent/setup/setup.ts';
import { silentProgress } from '../../host-agent/setup/step.ts';
import { type Stack, startStack } from '../../scripts/development/stack.ts';
import { locations } from '../../scripts/locations.ts';
import { success } from '../../shared/errors.ts';
import { DEFAULT_RESOURCE_LIMITS } from '../../shared/limits.ts';
import { type ScriptedCall, ScriptedSandboxes } from '../fixtures/edge-double/scripted-sandboxes.ts';
import { ApiClient, type SessionClient } from './client.ts';
import { type Collected, collected, type SeenEvent } from './event-stream.ts';
import { NEVER_LATE } from './stack.ts';
import { pause } from './until.ts';

export interface ScriptedHost {
  agent: Agent;
  sandboxes: ScriptedSandboxes;
  stop(): Promise<void>;
}

export class ScriptedStack {
  readonly stack: Stack;
  readonly api: ApiClient;
  readonly #stateDir: string;
  readonly #hosts: ScriptedHost[] = [];

  private constructor(stack: Stack, api: ApiClient, stateDir: string) {
    this.stack = stack;
    this.api = api;
    this.#stateDir = stateDir;
  }

  static async start(): Promise<ScriptedStack> {
    const stateDir = await mkdtemp(join(tmpdir(), 'sandgate-links-'));
    const places = { ...locations(process.env), stateDir };
    const stack = await startStack({
      locations: places,
      installation: await setUp(places, process.env, silentProgress),
      port: 0,
      hostAgent: false,
      bindings: { TENANT_REQUESTS_PER_MINUTE: '1000000', ...NEVER_LATE },
    });
    return new ScriptedStack(stack, new ApiClient(stack.url, await stack.token()), stateDir);
  }

  /** `edgeUrl` is where it dials: the edge itself, or a proxy before it. */
  async addHost(
    options: Partial<Pick<AgentOptions, 'timing' | 'edgeUrl'>> & { capacity?: number } = {},
  ): Promise<ScriptedHost> {
    const { capacity = 64, edgeUrl = this.stack.url, ...rest } = options;
    const sandboxes = new ScriptedSandboxes({ capacity });
    sandboxes.onCall = (call) => void play(call);
    const hostDir = await mkdtemp(join(tmpdir(), 'sandgate-scripted-host-'));
    const started = await startAgent({
      hostDir,
      edgeUrl,
      edgeOrigin: this.stack.keys.edge_origin,
      enrolmentToken: await this.stack.operator.createEnrollmentToken(),
      agentVersion: 'scripted',
      caps: { ...DEFAULT_RESOURCE_LIMITS, cpus: 2 },
      log: SILENT_LOG,
      openSandboxes: async () => success(sandboxes),
      signal: new AbortController().signal,
      ...rest,
    });
    if (!started.ok) throw new Error(started.detail);
    await started.value.ready;
    const host: ScriptedHost = {
      agent: started.value,
      sandboxes,
      stop: async () => {
        await started.value.stop();
        await rm(hostDir, { recursive: true, force: true });
      },
    };
    this.#hosts.push(host);
    return host;
  }

  async stop(): Promise<void> {
    await Promise.all(this.#hosts.map((host) => host.stop()));
    await this.stack.stop();
    await rm(this.#stateDir, { recursive: true, force: true });
  }
}

/** `pieces × bytes every ms` of output that the name of the call decides, on both streams by turns. */
export interface Program {
  name: string;
  pieces: number;
  pieceBytes: number;
  everyMs: number;
}

export function outputOf({ name, pieces, pieceBytes }: Program): { stdout: Buffer; stderr: Buffer } {
  const all = Array.from({ length: pieces }, (_, index) => pieceOf(name, index, pieceBytes));
  return {
    stdout: Buffer.concat(all.filter((_, index) => index % 3 !== 2)),
    stderr: Buffer.concat(all.filter((_, index) => index % 3 === 2)),
  };
}

function pieceOf(name: string, index: number, bytes: number): Buffer {
  const seed = hash('sha256', `${name} ${index}`);
  return Buffer.from(seed.repeat(Math.ceil(bytes / seed.length)).slice(0, bytes));
}

async function play(call: ScriptedCall): Promise<void> {
  const { arguments: given } = call.call;
  const program: Program = JSON.parse(String(Reflect.get(Object(given), 'command')));
  for (let index = 0; index < program.pieces; index += 1) {
    await call.write(index % 3 === 2 ? 'stderr' : 'stdout', pieceOf(program.name, index, program.pieceBytes));
    if (program.everyMs > 0) await pause(program.everyMs);
  }
  call.end();
}

export async function begin(session: SessionClient, program: Program, timeoutMs = 120_000): Promise<string> {
  const accepted = await session.detach('shell', { command: JSON.stringify(program) }, { timeoutMs });
  return accepted.execution_id;
}

/** Reads to the end, coming back with the last id as often as it takes. */
export async function follow(session: SessionClient, executionId: string): Promise<Collected> {
  const events: SeenEvent[] = [];
  while (events.at(-1)?.event.event !== 'end') {
    const stream = await session.events(executionId, events.at(-1)?.id).catch(() => undefined);
    if (stream === undefined) {
      await pause(200);
      continue;
    }
    try {
      for await (const seen of stream) events.push(seen);
    } catch {
      // Cut: the last id is where it goes on.
    }
  }
  return collected(events);
}
