/** What the contract suite is run on, and how it calls it. */
import { expect } from 'vitest';
import type { Sandbox, Sandboxes, ToolOutcome } from '../../host-agent/sandbox/port.ts';
import type { StreamName } from '../../shared/execution.ts';
import type { ResourceLimits } from '../../shared/session.ts';
import type { ToolName } from '../../shared/tool.ts';

export interface Subject {
  sandboxes: Sandboxes;
  imageDigest: string;
  /** Another instance on the same machine and folders, as after an agent that was killed. */
  restarted(): Promise<Sandboxes>;
  /** What is on the machine of a sandbox: processes, containers, cgroups, mounts, folders. */
  tracesOf(sandboxId: string): Promise<string[]>;
}

export type GetSubject = () => Subject;

const MIB = 1024 * 1024;
export const LIMITS: ResourceLimits = {
  cpus: 1,
  memory_bytes: 256 * MIB,
  processes: 64,
  workspace_bytes: 64 * MIB,
  tmp_bytes: 32 * MIB,
};

let count = 0;

export function newSandboxId(): string {
  count += 1;
  return `sbx-${process.pid.toString(16).padStart(8, '0')}${count.toString(16).padStart(8, '0')}`;
}

export async function startSandbox(subject: Subject, limits: Partial<ResourceLimits> = {}): Promise<Sandbox> {
  const started = await subject.sandboxes.start({
    sandboxId: newSandboxId(),
    imageDigest: subject.imageDigest,
    limits: { ...LIMITS, ...limits },
    environment: { GREETING: 'hello there' },
  });
  if (!started.ok) throw new Error(`${started.code}: ${started.detail}`);
  return started.value;
}

export interface CallResult extends ToolOutcome {
  stdout: string;
  stderr: string;
  /** In the order of arrival. */
  chunks: { stream: StreamName; bytes: Uint8Array }[];
}

export interface CallOptions {
  timeoutMs?: number;
  /** Given whole, then the input ends; null: a call that takes none; without it the input stays open. */
  stdin?: string | null;
  /** Interrupts as soon as this was printed. */
  interruptAt?: string;
  /** Runs as soon as something was printed. */
  onOutput?: () => void;
}

let executions = 0;

export async function call(
  sandbox: Sandbox,
  tool: ToolName,
  toolArguments: unknown,
  options: CallOptions = {},
): Promise<CallResult> {
  const chunks: CallResult['chunks'] = [];
  const textOf = (wanted: StreamName): string =>
    Buffer.concat(chunks.filter(({ stream }) => stream === wanted).map(({ bytes }) => bytes)).toString(
      'utf8',
    );
  executions += 1;
  const running = sandbox.execute(
    {
      executionId: `exe_${executions.toString().padStart(22, '0')}`,
      tool,
      arguments: toolArguments,
      timeoutMs: options.timeoutMs ?? 20_000,
      stdin: options.stdin !== null,
    },
    async (stream, bytes) => {
      chunks.push({ stream, bytes });
      options.onOutput?.();
      if (options.interruptAt !== undefined && textOf('stdout').includes(options.interruptAt))
        running.interrupt();
    },
  );
  if (options.stdin === null) {
    const refused = await running.writeStdin(Buffer.from('x'), true);
    expect(refused).toMatchObject({ ok: false, code: 'execution_not_running' });
  } else if (options.stdin !== undefined) {
    expect(await running.writeStdin(Buffer.from(options.stdin), true)).toEqual({ ok: true, value: null });
  }
  const outcome = await running.finished;
  return { ...outcome, stdout: textOf('stdout'), stderr: textOf('stderr'), chunks };
}

export const python = (sandbox: Sandbox, code: string, options?: CallOptions): Promise<CallResult> =>
  call(sandbox, 'python', { code }, options);

export const node = (sandbox: Sandbox, code: string, options?: CallOptions): Promise<CallResult> =>
  call(sandbox, 'node', { code }, options);

export const shell = (sandbox: Sandbox, command: string, options?: CallOptions): Promise<CallResult> =>
  call(sandbox, 'shell', { command }, options);

export const file = (sandbox: Sandbox, request: object): Promise<CallResult> =>
  call(sandbox, 'file', request);
