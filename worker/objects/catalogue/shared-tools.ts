/** The tools that the operator has for all tenants, as each tenant's catalogue has them: copied when they changed. */
import type { DefinedTool } from '../../../shared/registered-tool.ts';
import type { Env } from '../../env.ts';
import { KNOWN_FOR_MS } from '../../tools/known-tools.ts';
import { logWarning, messageOf } from '../log.ts';
import type { PutTool, SharedCatalogue, StoredTool } from './port.ts';
import { SHARED } from './shared-name.ts';
import type { Sources } from './sources/sources.ts';

export const MAX_SHARED_TOOLS = 500;
export const MAX_SHARED_TOOL_CHARACTERS = 8 * 1024 * 1024;
/**
 * With what isolates know for a moment, a change is seen within half a minute: one object answers the catalogues of all
 * tenants.
 */
const FRESH_MS = 30_000 - KNOWN_FOR_MS;

export class SharedTools {
  readonly #env: Env;
  readonly #sources: Sources;
  readonly #take: (tools: PutTool[]) => Promise<void>;
  #askedAtMs = 0;
  #asking: Promise<void> | undefined;

  constructor(env: Env, sources: Sources, take: (tools: PutTool[]) => Promise<void>) {
    this.#env = env;
    this.#sources = sources;
    this.#take = take;
  }

  /** Where they cannot be had, those of before stay. */
  async follow(): Promise<void> {
    const ageMs = Date.now() - this.#askedAtMs;
    if (ageMs >= 0 && ageMs < FRESH_MS) return;
    this.#asking ??= this.#ask().finally(() => {
      this.#asking = undefined;
    });
    await this.#asking;
  }

  /** A name came free that one of them may have. */
  askAgain(): void {
    this.#sources.sharedRevision = '';
    this.#askedAtMs = 0;
  }

  async #ask(): Promise<void> {
    try {
      const shared = await this.#env.CATALOGUE.getByName(SHARED).shared(this.#sources.sharedRevision);
      if (shared.ok && shared.value.tools !== null) {
        await this.#take(shared.value.tools);
        this.#sources.sharedRevision = shared.value.revision;
      }
    } catch (error: unknown) {
      logWarning('shared_tools_not_seen', { detail: messageOf(error) });
    }
    this.#askedAtMs = Date.now();
  }
}

/** Of the catalogue that holds them. */
export function sharedCatalogue(
  revision: string,
  known: string,
  tools: () => Iterable<StoredTool>,
): SharedCatalogue {
  return { revision, tools: revision === known ? null : Array.from(tools(), putOf) };
}

function putOf({ tool, sealedCredentials }: StoredTool): PutTool {
  const definition: DefinedTool = tool;
  const names = tool.kind === 'http' ? tool.credential_names : [];
  return {
    tool: definition,
    credentials: sealedCredentials === null ? null : { sealed: sealedCredentials, names },
    fault: tool.status === 'broken' ? (tool.reason ?? 'it is broken') : null,
  };
}
