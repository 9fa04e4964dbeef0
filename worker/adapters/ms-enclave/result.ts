/** The result of a call as ms-enclave's clients read it. */
import type { Execution } from '../../../shared/execution.ts';
import { DEFAULT_MAX_CHARACTERS, executionText } from '../../rendering/execution-text.ts';
import type { EnclaveTool } from './tools.ts';

export interface ToolResult {
  status: 'success' | 'error' | 'timeout' | 'cancelled';
  /** Seconds. */
  execution_time: number | null;
  timestamp: string;
  tool_name: string;
  output: unknown;
  metadata: Record<string, unknown>;
  error: string | null;
}

export function refusedResult(toolName: string, error: string, nowMs: number): ToolResult {
  return {
    status: 'error',
    execution_time: null,
    timestamp: new Date(nowMs).toISOString(),
    tool_name: toolName,
    output: '',
    metadata: {},
    error,
  };
}

export function resultOf(
  name: string,
  execution: Execution,
  { tool, args, nowMs }: { tool: EnclaveTool | undefined; args: Record<string, unknown>; nowMs: number },
): ToolResult {
  const base = {
    execution_time: execution.duration_ms === null ? null : execution.duration_ms / 1_000,
    timestamp: execution.finished_at ?? new Date(nowMs).toISOString(),
    tool_name: name,
    metadata: { execution_id: execution.execution_id, session_id: execution.session_id },
  };
  const absent = execution.error?.name === 'FileNotFound' ? tool?.absent?.(args) : undefined;
  if (absent !== undefined) return { ...base, status: 'success', output: absent, error: null };
  if (execution.status === 'succeeded') {
    // A registered tool has an answer of its own.
    const output =
      tool === undefined ? execution.structured : (tool.output?.(execution, args) ?? execution.stdout);
    return { ...base, status: 'success', output, error: textOrNull(execution.stderr) };
  }
  return { ...base, status: statusOf(execution), output: execution.stdout, error: errorOf(execution) };
}

function statusOf({ status }: Execution): ToolResult['status'] {
  if (status === 'timeout') return 'timeout';
  return status === 'cancelled' || status === 'interrupted' ? 'cancelled' : 'error';
}

/** What the program wrote to say so, or what we know of its end. */
function errorOf(execution: Execution): string {
  const written = execution.stderr === '' ? (execution.error?.traceback ?? '') : execution.stderr;
  return written === '' ? executionText(execution, DEFAULT_MAX_CHARACTERS) : written;
}

function textOrNull(text: string): string | null {
  return text === '' ? null : text;
}
