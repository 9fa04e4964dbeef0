/** Sandboxes that calls share. Which belong to the pool stands with each; a call takes any of them and waits its turn there. */
import { type Outcome, success } from '../../../shared/errors.ts';
import type { CreateSession } from '../../../shared/session.ts';
import { sessionOf } from '../../calls/own-session.ts';
import { SAFE, UNSAFE } from '../../objects/object-calls.ts';
import type { Exchange } from '../../routing/route.ts';
import { METADATA } from './configuration.ts';
import type { ToolResult } from './result.ts';
import { executeTool, listedSandboxes, makeSandbox, type ToolRequest } from './sandboxes.ts';

export const MAX_POOL_SIZE = 32;

/** All of them or none. */
export async function initializePool(
  exchange: Exchange<'tenant'>,
  request: CreateSession,
  size: number,
): Promise<Outcome<string[]>> {
  const ids: string[] = [];
  while (ids.length < size) {
    const made = await makeSandbox(exchange, request);
    if (made.ok) {
      ids.push(made.value.session_id);
      continue;
    }
    for (const id of ids) {
      const session = sessionOf(exchange, id);
      await session.call((stub) => stub.destroy(session.caller), UNSAFE);
    }
    return made;
  }
  return success(ids);
}

/** Null where the pool is empty. */
export async function executeInPool(
  exchange: Exchange<'tenant'>,
  request: ToolRequest,
): Promise<Outcome<ToolResult> | null> {
  const listed = await listedSandboxes(exchange);
  const pooled = shuffled(listed.filter(({ metadata }) => metadata[METADATA.pool] !== undefined));
  for (const { session_id } of pooled) {
    const session = sessionOf(exchange, session_id);
    const known = await session.call((stub) => stub.describe(session.caller), SAFE);
    // One that ended in between; so may all.
    if (!known.ok || known.value.state !== 'running') continue;
    return executeTool(exchange, { session, known: known.value }, request);
  }
  return null;
}

function shuffled<T>(items: readonly T[]): T[] {
  return items
    .map((item) => ({ item, key: Math.random() }))
    .toSorted((one, other) => one.key - other.key)
    .map(({ item }) => item);
}
