/** What a call over MCP says beside the arguments of its tool, and how the two are told apart. */
import * as z from 'zod';
import { MAX_TIMEOUT_MS } from '../../shared/limits.ts';
import { propertiesOf, requiredOf, without } from '../formats/json-schema.ts';
import { checkValue } from '../middleware/body.ts';
import type { JsonSchema } from '../tools/definition.ts';

/** What the header of the REST API takes. */
export const IdempotencyKeySchema = z
  .string()
  .regex(/^[\x21-\x7e]{1,255}$/)
  .describe('A repeated call with the same key gives the first result and does nothing twice.');

const CallOptionsSchema = z.object({
  session_id: z.string().max(64).optional(),
  timeout_ms: z.int().min(1).max(MAX_TIMEOUT_MS).optional(),
  idempotency_key: IdempotencyKeySchema.optional(),
});
export type CallOptions = z.infer<typeof CallOptionsSchema>;

const OPTION_NAMES = ['session_id', 'timeout_ms', 'idempotency_key'] as const;

const IN_A_SESSION = 'The session to run in, from create_session.';
const OWN_SESSION = 'Without it the call has a session of its own, which ends with it.';

/** A tool whose own arguments have one of these names keeps it for itself. */
export function withCallOptions(
  schema: JsonSchema,
  { needsSession }: { needsSession: boolean },
): JsonSchema & { type: 'object' } {
  const own = propertiesOf(schema);
  const options: Record<(typeof OPTION_NAMES)[number], JsonSchema> = {
    session_id: {
      type: 'string',
      description: needsSession ? IN_A_SESSION : `${IN_A_SESSION} ${OWN_SESSION}`,
    },
    timeout_ms: {
      type: 'integer',
      minimum: 1,
      maximum: MAX_TIMEOUT_MS,
      description: 'Milliseconds after which the call is stopped; 30000 without it.',
    },
    idempotency_key: without(z.toJSONSchema(IdempotencyKeySchema), ['$schema']),
  };
  const added = Object.entries(options).filter(([name]) => !own.has(name));
  return {
    ...schema,
    type: 'object',
    properties: { ...Object.fromEntries(own), ...Object.fromEntries(added) },
    required: [...requiredOf(schema), ...(needsSession && !own.has('session_id') ? ['session_id'] : [])],
  };
}

export function splitCall(
  given: Record<string, unknown>,
  schema: JsonSchema,
): { args: Record<string, unknown>; options: CallOptions } {
  const own = propertiesOf(schema);
  const isOption = (name: string) => OPTION_NAMES.some((option) => option === name) && !own.has(name);
  const entries = Object.entries(given);
  // Models send null for what they leave out.
  const options = entries.filter(([name, value]) => isOption(name) && value !== null);
  return {
    args: Object.fromEntries(entries.filter(([name]) => !isOption(name))),
    options: checkValue(Object.fromEntries(options), CallOptionsSchema, 'arguments'),
  };
}
