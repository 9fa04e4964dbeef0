/** Requests that the front makes of a session object, where the answer is a stream. */
import { failure, type Outcome, success } from '../../../shared/errors.ts';
import { ExecutionIdSchema } from '../../../shared/ids.ts';
import type { Caller } from '../caller.ts';
import { CallerSchema, type ExecuteInput, ExecuteInputSchema, INTERNAL_HEADERS } from './port.ts';

export async function readExecuteInput(request: Request): Promise<Outcome<ExecuteInput>> {
  const parsed = ExecuteInputSchema.safeParse(await request.json());
  if (parsed.success) return success(parsed.data);
  return failure('internal', `internal request: ${parsed.error.issues[0]?.path.join('.') ?? ''}`);
}

export function readCaller(request: Request): Caller | undefined {
  const text = request.headers.get(INTERNAL_HEADERS.caller);
  return text === null ? undefined : CallerSchema.safeParse(JSON.parse(text)).data;
}

export function readEventsPath(
  request: Request,
): { executionId: string; encoding: 'utf-8' | 'base64' | undefined } | undefined {
  const { pathname, searchParams } = new URL(request.url);
  const executionId = /^\/executions\/([^/]+)\/events$/.exec(pathname)?.[1];
  if (!ExecutionIdSchema.safeParse(executionId).success || executionId === undefined) return undefined;
  const encoding = searchParams.get('encoding');
  return { executionId, encoding: encoding === 'utf-8' || encoding === 'base64' ? encoding : undefined };
}
