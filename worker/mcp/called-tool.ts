/** The tool of a call that was made, as its caller may use it now. */
import type { Execution } from '../../shared/execution.ts';
import type { Exchange } from '../routing/route.ts';
import { callableTools } from '../tools/catalogue.ts';
import { mayUse } from '../tools/policy.ts';
import { registeredGuard } from '../tools/registered.ts';
import { finished, storedTools } from '../tools/resolve-call.ts';

export interface CalledTool {
  /** The result as the tool promises it, or said to be otherwise. */
  finish: (execution: Execution) => Execution;
}

/** `undefined` for one that is there no more, or that the caller may not use. */
export async function calledTool(
  exchange: Exchange<'tenant'>,
  name: string,
): Promise<CalledTool | undefined> {
  const builtIn = callableTools(exchange.principal).find((tool) => tool.name === name);
  if (builtIn !== undefined) return { finish: (execution) => execution };
  const [stored] = await storedTools(exchange, [name], 'name');
  if (stored === undefined) return undefined;
  const { tool } = stored;
  if (!mayUse(exchange.principal, registeredGuard(tool))) return undefined;
  return { finish: (execution) => finished(tool, execution) };
}
