/** JSON Schema of what a tool of the MCP server takes and gives. */
import * as z from 'zod';
import { without } from '../formats/json-schema.ts';
import type { JsonSchema } from '../tools/definition.ts';

export function jsonSchemaOf(schema: z.ZodType, io: 'input' | 'output'): JsonSchema {
  return without(z.toJSONSchema(schema, { io, unrepresentable: 'any' }), ['$schema']);
}
