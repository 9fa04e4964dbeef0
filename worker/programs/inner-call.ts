/** A call that a program makes: the same check as of any other call, and then who executes it. */
import type { CallError } from '../../shared/code-mode.ts';
import { sha256Hex } from '../../shared/digest.ts';
import { type Failure, failure } from '../../shared/errors.ts';
import type { Execution } from '../../shared/execution.ts';
import { ToolNameSchema } from '../../shared/tool.ts';
import { isSchema } from '../formats/json-schema.ts';
import { withoutAbsent } from '../formats/nulls.ts';
import { parseStrictJson } from '../json/strict-json.ts';
import { Refusal } from '../middleware/refusal.ts';
import { requireFit } from '../tools/check-call.ts';
import { codeCommand } from '../tools/code-cell.ts';
import type { EdgePerformance, ResolveContext } from '../tools/performance.ts';
import { definitionOf } from '../tools/registered.ts';
import {
  checkStored,
  finished,
  identityOf,
  resolveStored,
  storedTools,
  type ToolIdentity,
} from '../tools/resolve-call.ts';

const BOUNDS = { maxDepth: 66, maxValues: 100_000 };
const MAX_MESSAGE_CHARACTERS = 4_000;

interface Common {
  arguments: Record<string, unknown>;
  /** Of their JSON. */
  argsSha256: string;
  toolVersion: string;
  /** Whether it may change something. */
  writes: boolean;
}

export type InnerCallPlan =
  | { by: 'nobody'; error: CallError }
  /** Nobody, before somebody else has allowed it. */
  | ({ by: 'approver'; identity: ToolIdentity; timeoutMs: number } & Common)
  /** Whoever began the program. */
  | ({ by: 'caller' } & Common)
  /** A shell of the session, beside the program. */
  | ({ by: 'session'; call: CodeCall; finish: (execution: Execution) => Execution } & Common)
  | ({
      by: 'gateway';
      mayRepeat: boolean;
      performance: EdgePerformance;
      finish: (execution: Execution) => Execution;
    } & Common);

export interface AskedCall {
  name: string;
  /** JSON. */
  arguments: string;
  /** Digest of the tool for which an approval was given. */
  approved: string | null;
}

/** A registered function, as a command of the shell. */
export interface CodeCall {
  command: string;
  timeoutMs: number;
  calledAs: { name: string; version: string };
}

export async function planInnerCall(
  context: ResolveContext,
  call: AskedCall,
  allowed: readonly string[] | null,
): Promise<InnerCallPlan> {
  const args = argumentsOf(call.arguments);
  if (args === undefined) {
    return refused({ code: 'invalid_arguments', message: 'the arguments are not one JSON object' });
  }
  if (ToolNameSchema.safeParse(call.name).success) return refused(atHand(call.name));
  if (allowed !== null && !allowed.includes(call.name)) {
    return refused({
      code: 'tool_not_found',
      message: `the program may not call ${JSON.stringify(call.name)}`,
    });
  }
  try {
    return await plan(context, { name: call.name, args, approved: call.approved });
  } catch (error: unknown) {
    if (error instanceof Refusal) return refused(errorOf(error.failure));
    throw error;
  }
}

async function plan(
  context: ResolveContext,
  { name, args, approved }: { name: string; args: Record<string, unknown>; approved: string | null },
): Promise<InnerCallPlan> {
  const [stored] = await storedTools(context, [name], 'name');
  const given = stored === undefined ? args : withoutAbsent(args, stored.tool.input_schema);
  const call = { tool_name: name, arguments: given };
  const place = {
    root: '',
    caller: 'code' as const,
    approval: approved === null ? 'asked' : 'given',
  } as const;
  const { tool } = checkStored(context, { call, stored }, place);
  const { effects } = definitionOf(tool);
  const argsSha256 = await sha256Hex(JSON.stringify(given));
  const common = { arguments: given, argsSha256, toolVersion: tool.version, writes: !effects.readOnly };
  const identity = identityOf(tool);
  if (approved !== null && approved !== identity.digest) {
    throw new Refusal(failure('tool_unavailable', `${name} is another tool than the one that was allowed`));
  }
  if (approved === null && tool.approval === 'required') {
    return { by: 'approver', identity, timeoutMs: tool.timeout_ms, ...common };
  }
  if (tool.kind === 'client') return { by: 'caller', ...common };
  if (tool.kind === 'code') {
    const command = codeCommand(tool, given);
    requireFit({ command }, 'arguments');
    const calledAs = { name: tool.name, version: tool.version };
    const codeCall = { command, timeoutMs: tool.timeout_ms, calledAs };
    return { by: 'session', call: codeCall, finish: (execution) => finished(tool, execution), ...common };
  }
  const resolved = resolveStored(context, { call, stored }, place);
  if (resolved.performance === undefined) {
    throw new Refusal(failure('tool_unavailable', `${name} cannot be called from a program`));
  }
  const { performance, finish } = resolved;
  return { by: 'gateway', mayRepeat: effects.idempotent, performance, finish, ...common };
}

function argumentsOf(text: string): Record<string, unknown> | undefined {
  const parsed = parseStrictJson(text, BOUNDS);
  return parsed.ok && isSchema(parsed.value) ? { ...parsed.value } : undefined;
}

function refused(error: CallError): InnerCallPlan {
  return { by: 'nobody', error };
}

/** They would have to wait for the program that calls them. */
function atHand(name: string): CallError {
  const instead: Record<string, string> = {
    python: 'write it as part of the program, or start python3 as a process',
    node: 'write it as part of the program, or start node as a process',
    shell: 'start processes: subprocess.run in Python, child_process in JavaScript',
    file: 'open files: the working directory is the workspace',
  };
  return {
    code: 'tool_unavailable',
    message: `${name} is at hand in the program itself: ${instead[name] ?? ''}`,
  };
}

export function errorOf({ code, detail, violations = [] }: Failure): CallError {
  const places = violations.map(({ path, expected, received }) => {
    return `${path}: expected ${expected}${received === undefined ? '' : `, not ${received}`}`;
  });
  const message = code === 'invalid_request' && places.length > 0 ? places.join('; ') : detail;
  return {
    code: code === 'invalid_request' ? 'invalid_arguments' : code,
    message: message.slice(0, MAX_MESSAGE_CHARACTERS).toWellFormed(),
  };
}
