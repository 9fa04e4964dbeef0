/** The check of a call of a built-in tool before anything else sees it: the right to it, its arguments. */
import type { ArgumentConstraint } from '../../shared/argument-constraint.ts';
import { utf8 } from '../../shared/encoding.ts';
import { failure } from '../../shared/errors.ts';
import type { Execute } from '../../shared/execution.ts';
import { MAX_ARGUMENTS_BYTES } from '../../shared/limits.ts';
import { BUILT_IN_TOOLS, ToolNameSchema } from '../../shared/tool.ts';
import type { Configuration } from '../configuration.ts';
import type { TenantPrincipal } from '../identity/principal.ts';
import { requireScopes } from '../middleware/authentication.ts';
import { checkValue } from '../middleware/body.ts';
import { Refusal } from '../middleware/refusal.ts';
import { callableTools } from './catalogue.ts';
import { requireBuiltIn, requireBuiltInCall } from './held-call.ts';
import type { ToolCaller } from './policy.ts';

export interface CallContext {
  principal: TenantPrincipal;
  configuration: Configuration;
}

/** Scopes beside the tool's own, and where the call is: paths of violations begin there. */
export interface CallPlace {
  scopes?: readonly string[];
  root?: string;
  /** Who calls: a client or its model, or code in a session. */
  caller?: ToolCaller;
  /**
   * What becomes of a call that needs an approval: it is refused, unless who resolves it can ask for one, or has one.
   */
  approval?: 'asked' | 'given';
}

const MAX_NAME_CHARACTERS = 128;

/** The call with its arguments as the tool's schema reads them, defaults filled in, and what they were held to. */
export function checkCall<Call extends Pick<Execute, 'tool_name' | 'arguments'>>(
  context: CallContext,
  call: Call,
  { scopes = [], root = 'body.' }: CallPlace = {},
): { call: Call; constraints: ArgumentConstraint[] } {
  const name = ToolNameSchema.safeParse(call.tool_name);
  if (!name.success) throw toolNotFound(context.principal, call.tool_name, root);
  const tool = BUILT_IN_TOOLS[name.data];
  requireScopes(context.principal, [...scopes, tool.scope], context.configuration);
  requireBuiltIn(context.principal, name.data);
  const path = `${root}arguments`;
  const checked = checkValue<Record<string, unknown>>(call.arguments, tool.arguments, path);
  requireFit(checked, path);
  const held = { arguments: checked, root: path };
  const constraints = requireBuiltInCall(context.principal, name.data, held);
  return { call: { ...call, arguments: checked }, constraints };
}

/** What travels to the host is JSON in UTF-8, where a character may take six bytes: a text's own length says little. */
export function requireFit(checked: Record<string, unknown>, path: string): void {
  const bytes = utf8(JSON.stringify(checked)).length;
  if (bytes <= MAX_ARGUMENTS_BYTES) return;
  const expected = `at most ${MAX_ARGUMENTS_BYTES} bytes as JSON in UTF-8`;
  throw new Refusal(
    failure('payload_too_large', `${path}: expected ${expected}, not ${bytes}`, {
      violations: [{ path, expected }],
    }),
  );
}

export function toolNotFound(principal: TenantPrincipal, name: string, root: string): Refusal {
  const names = callableTools(principal)
    .map((tool) => tool.name)
    .join(', ');
  const given = JSON.stringify(name.slice(0, MAX_NAME_CHARACTERS));
  return new Refusal(
    failure('tool_not_found', `no tool ${given}; you may call: ${names}, and registered tools`, {
      violations: [{ path: `${root}tool_name`, expected: `one of ${names}, or a registered tool` }],
    }),
  );
}
