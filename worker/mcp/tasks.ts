/**
 * The extension `io.modelcontextprotocol/tasks` for clients of 2026-07-28: a call that lasts becomes a task. A task is
 * an execution, and nothing else is stored of it: what its session says of the execution is what the task says.
 */
import {
  type CallToolResult,
  MissingRequiredClientCapabilityError,
  ProtocolError,
  ProtocolErrorCode,
  type Result,
  type Server,
} from '@modelcontextprotocol/server';
import type { Execution } from '../../shared/execution.ts';
import { isTerminal } from '../../shared/lifecycle.ts';
import { findExecution, stopExecution } from '../calls/own-execution.ts';
import { callerOf, type OwnSession, ownSession } from '../calls/own-session.ts';
import { Refusal } from '../middleware/refusal.ts';
import type { Exchange } from '../routing/route.ts';
import { calledTool } from './called-tool.ts';
import { callResult } from './result.ts';
import { newTaskId, type TaskReference, taskOf } from './task-id.ts';
import { MISSING_TASKS, TASKS_EXTENSION, type TaskMethod, TaskParamsSchema } from './task-messages.ts';
import { detailedTask, type Task, taskView } from './task-view.ts';
import { unexpected } from './unexpected.ts';

/** A call that ends within this time is answered directly. */
const MOMENT_MS = 2_000;

/** What becomes of a call that lasts: only for a client that says, with the call, that it knows tasks. */
export interface TaskCreation {
  momentMs: number;
  /** Of an execution that is written in its session, or with who approves it. */
  created: (
    execution: Execution,
    how: Pick<TaskReference, 'isOwnSession' | 'form'>,
  ) => Promise<CallToolResult>;
}

interface FoundTask {
  task: Task;
  reference: TaskReference;
  session: OwnSession;
  execution: Execution;
}

/** For a server of one request: what its client declares, it declares for this request. */
export function serveTasks(server: Server, exchange: Exchange<'tenant'>): void {
  const serve = (method: TaskMethod, act: (found: FoundTask) => Promise<Result>) => {
    // Their other parameters were looked at before; the protocol's own server takes `inputResponses` out of them.
    server.setRequestHandler(method, { params: TaskParamsSchema }, async ({ taskId }) => {
      if (!declaresTasks(server)) throw new MissingRequiredClientCapabilityError(MISSING_TASKS);
      try {
        return await act(await foundTask(exchange, taskId));
      } catch (error: unknown) {
        throw asProtocolError(error, exchange);
      }
    });
  };
  server.registerCapabilities({ extensions: { [TASKS_EXTENSION]: {} } });
  serve('tasks/get', async ({ task, reference, execution }) => {
    const { form, isOwnSession } = reference;
    const result = () => callResult(execution, { form, ownSession: isOwnSession });
    return { ...detailedTask(task, result) };
  });
  serve('tasks/cancel', async ({ execution, session }) => {
    if (isTerminal(execution.status)) return {};
    const stopped = await stopExecution(exchange, session, execution.execution_id);
    // It ended by itself in between, or is made where nothing stops it: whoever asks again sees how it ended.
    if (!stopped.ok && stopped.code !== 'execution_not_running') throw new Refusal(stopped);
    return {};
  });
  // No task asks its client for anything, so every answer is one to a request that is not outstanding.
  serve('tasks/update', async () => ({}));
}

export function taskCreation(server: Server, exchange: Exchange<'tenant'>): TaskCreation | undefined {
  if (!declaresTasks(server)) return undefined;
  return {
    momentMs: MOMENT_MS,
    created: async (execution, how) => {
      const { execution_id: executionId, session_id: sessionId } = execution;
      const { tagKey } = exchange.configuration;
      const taskId = await newTaskId(tagKey, callerOf(exchange), { sessionId, executionId, ...how });
      return { content: [], ...taskView(taskId, execution, Date.now()), resultType: 'task' };
    },
  };
}

async function foundTask(exchange: Exchange<'tenant'>, taskId: string): Promise<FoundTask> {
  const reference = await taskOf(exchange.configuration.tagKey, callerOf(exchange), taskId);
  if (reference === undefined) throw unknownTask();
  const { sessionId, executionId } = reference;
  const session = await ownSession(exchange, sessionId);
  const found = await findExecution(exchange, session, {
    executionId,
    read: (stub) => stub.recall(session.caller, executionId, 0),
  });
  if (!found.ok) throw found.code === 'not_found' ? unknownTask() : new Refusal(found);
  const tool = await calledTool(exchange, found.value.tool_name);
  if (tool === undefined) throw unknownTask();
  const execution = isTerminal(found.value.status) ? tool.finish(found.value) : found.value;
  return { task: taskView(taskId, execution, Date.now()), reference, session, execution };
}

function declaresTasks(server: Server): boolean {
  return server.getClientCapabilities()?.extensions?.[TASKS_EXTENSION] !== undefined;
}

/** One of another caller, one that was made up and one that is over answer the same. */
function unknownTask(): Error {
  return new ProtocolError(ProtocolErrorCode.InvalidParams, 'params.taskId: no such task, or not yours');
}

function asProtocolError(error: unknown, { requestId }: Exchange<'tenant'>): Error {
  if (error instanceof ProtocolError) return error;
  const { code, detail } = error instanceof Refusal ? error.failure : unexpected(error, requestId);
  return new ProtocolError(ProtocolErrorCode.InternalError, `${code}: ${detail}`);
}
