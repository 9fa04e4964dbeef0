import { describe, expect, test } from 'vitest';
import { type LogFields, SILENT_LOG } from '../../../host-agent/logging/log.ts';
import type { Sandbox, ToolCall, ToolOutcome } from '../../../host-agent/sandbox/port.ts';
import { type WatchedSandboxes, watchSandboxes } from '../../../host-agent/watchdog/watched-sandboxes.ts';
import { DEFAULT_RESOURCE_LIMITS } from '../../../shared/limits.ts';
import { SCRIPTED_IMAGE, ScriptedSandboxes } from '../../fixtures/edge-double/scripted-sandboxes.ts';

const CALL: ToolCall = { executionId: 'exe_1', tool: 'python', arguments: { code: '' }, timeoutMs: 20 };
const GRACE = { overdueGraceMs: 20, destroyGraceMs: 200 };

interface Watched {
  scripted: ScriptedSandboxes;
  sandboxes: WatchedSandboxes;
  sandbox: Sandbox;
  events: LogFields[];
}

async function watched(): Promise<Watched> {
  const events: LogFields[] = [];
  const note = (fields: LogFields): void => void events.push(fields);
  const scripted = new ScriptedSandboxes();
  const log = { ...SILENT_LOG, info: note, error: note };
  const sandboxes = watchSandboxes(scripted, { log, ...GRACE });
  const started = await sandboxes.start({
    sandboxId: 'sbx-1',
    imageDigest: SCRIPTED_IMAGE,
    limits: DEFAULT_RESOURCE_LIMITS,
    environment: {},
  });
  if (!started.ok) throw new Error(started.detail);
  return { scripted, sandboxes, sandbox: started.value, events };
}

describe('watched sandboxes', () => {
  test('tell how long a start took and which executions run', async () => {
    const { scripted, sandboxes, sandbox, events } = await watched();
    expect(events).toEqual([
      { event: 'sandbox_started', sandbox_id: 'sbx-1', duration_ms: expect.any(Number) },
    ]);
    const running = sandbox.execute({ ...CALL, timeoutMs: 60_000 }, async () => {});
    expect(sandboxes.executions).toBe(1);
    (await scripted.call('exe_1')).end({ value: '42' });
    expect((await running.finished).value).toBe('42');
    expect(sandboxes.executions).toBe(0);
  });

  test('end an execution that outlived its deadline and grace, and its sandbox with it', async () => {
    const { scripted, sandbox, events } = await watched();
    const outcome: ToolOutcome = await sandbox.execute(CALL, async () => {}).finished;
    expect(outcome).toMatchObject({ stateLost: true });
    expect(scripted.started[0]?.isDestroyed).toBe(true);
    expect(events.at(-1)).toEqual({ event: 'execution_overdue', execution_id: 'exe_1', sandbox_id: 'sbx-1' });
  });

  test('give an end even when the sandbox never says one', async () => {
    const { scripted, sandboxes, sandbox } = await watched();
    const inner = scripted.started[0];
    if (inner === undefined) throw new Error('no sandbox');
    inner.destroy = () => new Promise(() => {});
    const outcome = await sandbox.execute(CALL, async () => {}).finished;
    expect(outcome).toMatchObject({ status: 'timeout', stateLost: true });
    expect(sandboxes.executions).toBe(0);
  });

  test('pass everything else through', async () => {
    const { scripted, sandboxes, sandbox } = await watched();
    expect(sandbox.id).toBe('sbx-1');
    expect(sandboxes.facts).toBe(scripted.facts);
    await sandbox.destroy();
    expect(await sandbox.lost).toEqual({ reason: 'destroyed' });
  });
});
