/** The tools that a caller may call, and the check of a call before anything else sees it. */
import * as z from 'zod';
import { failure } from '../../shared/errors.ts';
import type { Execute } from '../../shared/execution.ts';
import { BUILT_IN_TOOLS, type ToolName, ToolNameSchema } from '../../shared/tool.ts';
import type { TenantPrincipal } from '../identity/principal.ts';
import { requireScopes } from '../middleware/authentication.ts';
import { checkValue } from '../middleware/body.ts';
import { Refusal } from '../middleware/refusal.ts';
import { reply } from './reply.ts';
import { defineRoute, type Exchange } from './route.ts';

export const ToolListSchema = z.object({
  tools: z.array(
    z.object({
      name: z.string(),
      description: z.string(),
      category: z.string(),
      input_schema: z.record(z.string(), z.unknown()),
    }),
  ),
});

const CATEGORIES: Record<ToolName, string> = { python: 'code', shell: 'code', file: 'files' };

const DESCRIPTIONS = ToolNameSchema.options.map((name) => {
  const tool = BUILT_IN_TOOLS[name];
  return {
    name,
    description: tool.description,
    category: CATEGORIES[name],
    // Model APIs want an object at the top, also above a union.
    input_schema: { type: 'object', ...z.toJSONSchema(tool.arguments, { io: 'input' }) },
  };
});

export const listTools = defineRoute({
  method: 'GET',
  path: '/v1/tools',
  operationId: 'listTools',
  summary: 'The tools that this caller may call',
  access: { kind: 'tenant' },
  answers: { 200: { description: 'Tools by name', content: { 'application/json': ToolListSchema } } },
  errors: [],
  handle: (exchange) => {
    const callable = new Set<string>(callableTools(exchange.principal));
    return reply(200, { tools: DESCRIPTIONS.filter((tool) => callable.has(tool.name)) });
  },
});

/** The call with its arguments as the tool's schema reads them, defaults filled in. */
export function checkCall<Call extends Pick<Execute, 'tool_name' | 'arguments'>>(
  exchange: Exchange<'tenant'>,
  call: Call,
  neededScopes: readonly string[] = [],
): Call {
  const name = ToolNameSchema.safeParse(call.tool_name);
  if (!name.success) {
    const names = callableTools(exchange.principal).join(', ');
    throw new Refusal(
      failure('tool_not_found', `no tool ${JSON.stringify(call.tool_name)}; you may call: ${names}`, {
        violations: [{ path: 'body.tool_name', expected: `one of ${names}` }],
      }),
    );
  }
  const tool = BUILT_IN_TOOLS[name.data];
  requireScopes(exchange.principal, [...neededScopes, tool.scope], exchange.configuration);
  return {
    ...call,
    arguments: checkValue<Record<string, unknown>>(call.arguments, tool.arguments, 'body.arguments'),
  };
}

function callableTools(principal: TenantPrincipal): ToolName[] {
  return ToolNameSchema.options.filter((name) => principal.scopes.has(BUILT_IN_TOOLS[name].scope));
}
