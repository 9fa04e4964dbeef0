/** To what the calls of a token are held beside its scopes: which tools, and which values of their arguments. */
import * as z from 'zod';
import { CONSTRAINT_SHAPE, hasOneKind } from './argument-constraint.ts';
import { utf8 } from './encoding.ts';

/** It travels in tokens, and what it says of arguments in grants. */
export const MAX_TOOL_POLICY_BYTES = 4_096;

/** Entries of lists and fields, all together: a token has few, or it is not read. */
export const MAX_TOOL_POLICY_VALUES = 192;

const ToolNameText = z.string().min(1).max(128);
const CategoryText = z.string().min(1).max(64);

const ArgumentRuleSchema = z
  .strictObject({
    tool: ToolNameText.optional(),
    category: CategoryText.optional().describe('Every tool of this category.'),
    ...CONSTRAINT_SHAPE,
  })
  .refine(({ tool, category }) => (tool === undefined) !== (category === undefined), {
    message: 'exactly one of tool and category',
  })
  .refine(hasOneKind, { message: 'exactly one of path_prefixes, hosts, one_of' });
export type ArgumentRule = z.infer<typeof ArgumentRuleSchema>;

export const ToolPolicySchema = z
  .strictObject({
    tools: z
      .array(ToolNameText)
      .max(MAX_TOOL_POLICY_VALUES)
      .optional()
      .describe('No other tools than these.'),
    categories: z.array(CategoryText).max(64).optional().describe('No tools beyond these; `a/b` is in `a`.'),
    arguments: z
      .array(ArgumentRuleSchema)
      .max(32)
      .optional()
      .describe('What arguments must be; all that are of a tool hold.'),
  })
  .refine((policy) => utf8(JSON.stringify(policy)).length <= MAX_TOOL_POLICY_BYTES, {
    message: `at most ${MAX_TOOL_POLICY_BYTES} bytes as JSON`,
  })
  .refine((policy) => valuesIn(policy) <= MAX_TOOL_POLICY_VALUES, {
    message: `at most ${MAX_TOOL_POLICY_VALUES} values in all`,
  });
export type ToolPolicy = z.infer<typeof ToolPolicySchema>;

function valuesIn(value: unknown): number {
  if (typeof value !== 'object' || value === null) return 1;
  return Object.values(value).reduce<number>((count, inner) => count + valuesIn(inner), 1);
}
