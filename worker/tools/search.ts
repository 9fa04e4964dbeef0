/** Tools by what they do: only those that the caller may call are looked at, and they are asked for again when called. */
import type { EmbeddingUse } from '../embeddings/use.ts';
import type { Env } from '../env.ts';
import type { TenantPrincipal } from '../identity/principal.ts';
import { unwrap } from '../middleware/refusal.ts';
import { catalogueCalls, SAFE } from '../objects/object-calls.ts';
import { callableTools } from './catalogue.ts';
import type { ToolDefinition } from './definition.ts';
import { rightsOf } from './policy.ts';
import { shownTo } from './registered.ts';

export const TOOL_SEARCH_LIMITS = { default: 5, max: 50, queryCharacters: 2_000 } as const;

export interface FoundTools {
  /** Best first. */
  found: { tool: ToolDefinition; score: number }[];
  embeddings: EmbeddingUse;
}

export async function searchTools(
  { env, principal }: { env: Env; principal: TenantPrincipal },
  asked: { query: string; category?: string | undefined; limit: number },
): Promise<FoundTools> {
  const { hits, embeddings } = unwrap(
    await catalogueCalls(env, principal.tenant)(
      (stub) => stub.search({ ...asked, ...rightsOf(principal) }),
      SAFE,
    ),
  );
  const builtIn = callableTools(principal);
  const found = hits.flatMap(({ name, score, tool }) => {
    const known = tool === null ? builtIn.find((entry) => entry.name === name) : shownTo(principal, tool);
    return known === undefined ? [] : [{ tool: known, score: Math.round(score * 1_000) / 1_000 }];
  });
  return { found, embeddings };
}
