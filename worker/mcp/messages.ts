/** What the gateway itself reads of JSON-RPC messages, before the protocol's own server has them. */
import * as z from 'zod';
import { violationsOf } from '../middleware/violations.ts';
import type { RequestId } from './cancellation.ts';
import { TASK_PARAMETERS } from './task-messages.ts';

const RequestIdSchema = z.union([z.string(), z.number()]);
const CancelledSchema = z.object({
  method: z.literal('notifications/cancelled'),
  params: z.object({ requestId: RequestIdSchema }),
});
const ToolCallSchema = z.object({
  id: RequestIdSchema,
  method: z.literal('tools/call'),
  params: z.object({ name: z.string() }),
});
const MethodSchema = z.object({ method: z.string() });

/** Ids of the requests that the body takes back. */
export function cancelledRequests(body: unknown): RequestId[] {
  return parsedOf(body, CancelledSchema).map(({ params }) => params.requestId);
}

export function calledTools(body: unknown): string[] {
  return parsedOf(body, ToolCallSchema).map(({ params }) => params.name);
}

/** One call and nothing beside it: its stream is of that call alone. */
export function isSingleCall(body: unknown): boolean {
  return ToolCallSchema.safeParse(body).success;
}

export function isInitialize(body: unknown): boolean {
  return parsedOf(body, MethodSchema).some(({ method }) => method === 'initialize');
}

const ObjectSchema = z.record(z.string(), z.unknown());
/** Parameters that the protocol's server would answer for with a fault of its own. */
const PARAMETERS: Readonly<Record<string, z.ZodType>> = {
  initialize: z.looseObject({
    protocolVersion: z.string(),
    capabilities: ObjectSchema,
    clientInfo: z.looseObject({ name: z.string(), version: z.string() }),
  }),
  'tools/list': z.looseObject({ cursor: z.string().optional() }).optional(),
  'tools/call': z.looseObject({ name: z.string(), arguments: ObjectSchema.optional() }),
};
const MODERN_PARAMETERS: typeof PARAMETERS = { ...PARAMETERS, ...TASK_PARAMETERS };
const RequestSchema = z.looseObject({ id: RequestIdSchema, method: z.string() });

/**
 * What is wrong with the parameters of a single request, and where; `undefined` where nothing is. The newer era has
 * no `initialize`, whatever its parameters.
 */
export function parameterFault(
  body: unknown,
  { isLegacy }: { isLegacy: boolean },
): { id: RequestId; text: string } | undefined {
  const request = RequestSchema.safeParse(body);
  if (!request.success || (request.data.method === 'initialize' && !isLegacy)) return undefined;
  const { id, method, params } = request.data;
  const schemas = isLegacy ? PARAMETERS : MODERN_PARAMETERS;
  const schema = Object.hasOwn(schemas, method) ? schemas[method] : undefined;
  const parsed = schema?.safeParse(params);
  if (parsed === undefined || parsed.success) return undefined;
  const faults = violationsOf(parsed.error, 'params').map(
    ({ path, expected }) => `${path}: expected ${expected}`,
  );
  return { id, text: faults.slice(0, 4).join('; ') };
}

/** A body is one message or, in an older version, a batch of them. */
function parsedOf<T>(body: unknown, schema: z.ZodType<T>): T[] {
  return (Array.isArray(body) ? body : [body]).flatMap((message) => {
    const parsed = schema.safeParse(message);
    return parsed.success ? [parsed.data] : [];
  });
}
