/** Two hosts on real gVisor, without an edge: sandboxes are checkpointed on one and go on on either. */
import { mkdir, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect } from 'vitest';
import { SILENT_LOG } from '../../host-agent/logging/log.ts';
import { CarriedSandboxSchema } from '../../host-agent/sandbox/checkpoint/carried.ts';
import type { OutputSink, RunningExecution, Sandbox } from '../../host-agent/sandbox/port.ts';
import { RunscSandboxes } from '../../host-agent/sandbox/runsc-sandboxes.ts';
import { setUp, setUpImages } from '../../host-agent/setup/setup.ts';
import { silentProgress } from '../../host-agent/setup/step.ts';
import { locations } from '../../scripts/locations.ts';
import type { ToolName } from '../../shared/tool.ts';
import { until } from '../e2e/until.ts';
import { LIMITS, newSandboxId } from './subject.ts';

const GIB = 1024 ** 3;
const SET_UP_TIMEOUT_MS = 600_000;
export const TEST_TIMEOUT_MS = 300_000;
export const CALL_TIMEOUT_MS = 60_000;

let directory: string;
let imageDigest: string;
const hosts: RunscSandboxes[] = [];
let images = 0;

/** Before the tests of a file, and away after them. `image`: the recipe that sandboxes are made of, in place of the default one. */
export function useCheckpointHosts(image?: string): void {
  beforeAll(() => openHosts(image), SET_UP_TIMEOUT_MS);
  afterAll(async () => {
    await Promise.all(hosts.map((host) => host.stop()));
    await rm(directory, { recursive: true, force: true });
  });
}

async function openHosts(image: string | undefined): Promise<void> {
  const places = locations(process.env);
  const installation = await setUp(places, process.env, silentProgress);
  const [named] = image === undefined ? [] : await setUpImages([image], places, silentProgress);
  imageDigest = named?.digest ?? installation.image.digest;
  directory = await mkdtemp(join(tmpdir(), 'sandgate-checkpoint-'));
  const { runscPath, imagesDir, guestDir } = installation;
  for (const name of ['a', 'b']) {
    const opened = await RunscSandboxes.open({
      runscPath,
      imagesDir,
      guestDir,
      stateDir: join(directory, name),
      cgroupParent: `/sandgate-checkpoint-${name}-${process.pid}`,
      capacity: 8,
      caps: { cpus: 2, memory_bytes: GIB, processes: 256, workspace_bytes: GIB, tmp_bytes: GIB },
      log: SILENT_LOG,
    });
    if (!opened.ok) throw new Error(opened.detail);
    hosts.push(opened.value);
  }
}

function host(index: number): RunscSandboxes {
  const found = hosts[index];
  if (found === undefined) throw new Error(`there is no host ${index}`);
  return found;
}

const config = () => ({
  sandboxId: newSandboxId(),
  imageDigest,
  limits: LIMITS,
  environment: { GREETING: 'hello' },
});

export async function start(): Promise<Sandbox> {
  const started = await host(0).start(config());
  if (!started.ok) throw new Error(started.detail);
  return started.value;
}

export async function emptyFolder(): Promise<string> {
  images += 1;
  const folder = join(directory, `image-${images}`);
  await mkdir(folder);
  return folder;
}

export async function checkpoint(sandbox: Sandbox, imageDir?: string) {
  const folder = imageDir ?? (await emptyFolder());
  const taken = await sandbox.checkpoint?.(folder);
  if (taken?.ok !== true) throw new Error(taken?.detail ?? 'no checkpoints here');
  return { ...taken.value, imageDir: folder };
}

/** As the state arrives on another host. */
function received(state: unknown) {
  return CarriedSandboxSchema.parse(JSON.parse(JSON.stringify(state)));
}

export async function restore(
  on: number,
  from: { imageDir: string; state: unknown },
  generation: number,
  sink: OutputSink,
  isCopy = false,
) {
  const restored = await host(on).restore(config(), {
    imageDir: from.imageDir,
    state: received(from.state),
    generation,
    isCopy,
    sinkOf: () => sink,
  });
  if (!restored.ok) throw new Error(`${restored.code}: ${restored.detail}`);
  restored.value.goOn();
  return restored.value;
}

export const noOutput: OutputSink = async () => {
  throw new Error('nothing ran');
};

/** Asserts that the sandbox and two copies of it draw apart, in each kind of random value, and gives the three of them. */
export async function differFromTwoCopies(
  sandbox: Sandbox,
  drawn: (one: Sandbox) => Promise<Record<string, string>>,
): Promise<Sandbox[]> {
  // Each source has drawn before, so that it has a state which the copies could share.
  await drawn(sandbox);
  const taken = await checkpoint(sandbox);
  const copies = await Promise.all([
    restore(0, taken, 1, noOutput, true),
    restore(1, taken, 2, noOutput, true),
  ]);
  await taken.goOn();
  const all = [sandbox, ...copies.map((copy) => copy.sandbox)];
  const values = await Promise.all(all.map(drawn));
  const kinds = Object.keys(values[0] ?? {});
  expect(kinds).not.toEqual([]);
  for (const kind of kinds) {
    expect(new Set(values.map((value) => value[kind])).size, kind).toBe(all.length);
  }
  return all;
}

export async function moved(sandbox: Sandbox, on: number, generation = 1): Promise<Sandbox> {
  const taken = await checkpoint(sandbox);
  await taken.end();
  const { sandbox: next, calls } = await restore(on, taken, generation, noOutput);
  expect(calls).toEqual([]);
  return next;
}

/** A call whose output is followed wherever it goes on. */
export class Call {
  readonly chunks: { stream: string; bytes: Uint8Array }[] = [];
  running: RunningExecution | undefined;

  readonly sink: OutputSink = async (stream, bytes) => {
    this.chunks.push({ stream, bytes });
  };

  begin(sandbox: Sandbox, tool: ToolName, toolArguments: unknown): void {
    this.running = sandbox.execute(
      {
        executionId: 'exe_0000000000000000000000',
        tool,
        arguments: toolArguments,
        timeoutMs: CALL_TIMEOUT_MS,
      },
      this.sink,
    );
  }

  get text(): string {
    return Buffer.concat(this.chunks.map(({ bytes }) => bytes)).toString('utf8');
  }

  get lines(): string[] {
    return this.text.split('\n').filter((line) => line !== '');
  }

  async printed(count: number): Promise<void> {
    await until(`${count} lines`, CALL_TIMEOUT_MS, () => (this.lines.length >= count ? true : undefined));
  }

  async move(sandbox: Sandbox, on: number, generation: number): Promise<Sandbox> {
    const taken = await checkpoint(sandbox);
    await taken.end();
    const next = await restore(on, taken, generation, this.sink);
    this.running = next.calls[0]?.execution;
    return next.sandbox;
  }
}

export const numbers = (count: number): string[] =>
  Array.from({ length: count }, (_, index) => String(index));
