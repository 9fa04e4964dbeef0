/** Definitions of tools for the tests. */
import * as z from 'zod';
import { FileArgumentsSchema } from '../../../shared/tool.ts';
import type { JsonSchema, ToolDefinition } from '../../../worker/tools/definition.ts';

export function toolNamed(name: string, inputSchema: JsonSchema = { type: 'object' }): ToolDefinition {
  return {
    name,
    title: name,
    description: `Does ${name}.`,
    category: 'test',
    inputSchema,
    effects: { readOnly: true, destructive: false, idempotent: true, openWorld: true },
  };
}

export const FILE_SCHEMA: JsonSchema = z.toJSONSchema(FileArgumentsSchema, { io: 'input' });

/** R40 */
export const FETCH_SCHEMA: JsonSchema = {
  type: 'object',
  required: ['url'],
  properties: {
    url: { type: 'string', format: 'uri' },
    n: { type: 'integer', default: 5, minimum: 1 },
    o: { type: 'object', properties: { k: { type: 'string' } } },
  },
};

/** A tree, whose definition has itself inside. */
export const TREE_SCHEMA: JsonSchema = {
  type: 'object',
  required: ['root'],
  properties: { root: { $ref: '#/$defs/node' } },
  $defs: {
    node: {
      type: 'object',
      required: ['label'],
      properties: {
        label: { type: 'string' },
        children: { type: 'array', items: { $ref: '#/$defs/node' } },
      },
    },
  },
};

/** Every reference doubles: written out it would have 2^30 ends. */
export const DOUBLING_SCHEMA: JsonSchema = {
  type: 'object',
  properties: { x: { $ref: '#/$defs/d0' } },
  $defs: Object.fromEntries(
    Array.from({ length: 30 }, (_, index) => {
      const next = { $ref: `#/$defs/d${index + 1}` };
      return [
        `d${index}`,
        index === 29 ? { type: 'string' } : { anyOf: [next, { ...next, title: 'again' }] },
      ];
    }),
  ),
};
