/** To what the calls of a token are held beside its scopes: which tools, and which values of their arguments. */
import * as z from 'zod';
import { CONSTRAINT_SHAPE, hasOneKind } from './argument-constraint.ts';

/** It travels in tokens, and what it says of arguments in grants. */
export const MAX_TOOL_POLICY_CHARACTERS = 4_096;

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
    tools: z.array(ToolNameText).max(256).optional().describe('No other tools than these.'),
    categories: z.array(CategoryText).max(64).optional().describe('No tools beyond these; `a/b` is in `a`.'),
    arguments: z
      .array(ArgumentRuleSchema)
      .max(32)
      .optional()
      .describe('What arguments must be; all that are of a tool hold.'),
  })
  .refine((policy) => JSON.stringify(policy).length <= MAX_TOOL_POLICY_CHARACTERS, {
    message: `at most ${MAX_TOOL_POLICY_CHARACTERS} characters as JSON`,
  });
export type ToolPolicy = z.infer<typeof ToolPolicySchema>;
