/** Finds tools of a catalogue: by their words and, where the gateway has embeddings, by what they mean. */
import type { RegisteredTool } from '../../../shared/registered-tool.ts';
import { configurationOf } from '../../configuration.ts';
import type { EmbeddingUse } from '../../embeddings/use.ts';
import type { Env } from '../../env.ts';
import { fused } from '../../search/fusion.ts';
import type { Hit } from '../../search/ranking.ts';
import { ToolIndex } from '../../search/tool-index.ts';
import { wordsOf } from '../../search/words.ts';
import { BUILT_IN_ENTRIES } from '../../tools/catalogue.ts';
import { parametersText } from '../../tools/parameters-text.ts';
import { ToolEmbeddings } from './embeddings/embeddings.ts';

/** Of each ranking, those whose places count. */
const FUSED_PLACES = 50;

export interface ToolQuestion {
  query: string;
  limit: number;
  /** Made anew whenever it is needed: what is allowed may change while a model is asked. */
  filter: () => (name: string) => boolean;
}

export class ToolSearch {
  readonly #tools: () => Iterable<RegisteredTool>;
  readonly #embeddings: ToolEmbeddings | undefined;
  /** Made when it is first asked for, and kept as the tools change. */
  #index: ToolIndex | undefined;

  /** `tools`: the registered ones that can be called. */
  constructor(
    storage: DurableObjectStorage,
    { env, tools }: { env: Env; tools: () => Iterable<RegisteredTool> },
  ) {
    this.#tools = tools;
    if (env.EMBEDDINGS === undefined) return;
    this.#embeddings = new ToolEmbeddings(storage, {
      model: async () => (await configurationOf(env)).embeddings,
      tools: () => this.#made().tools,
    });
  }

  put(tool: RegisteredTool): void {
    this.#index?.put(tool.name, indexed(tool));
    this.#embeddings?.changed(tool.name);
  }

  remove(name: string): void {
    this.#index?.remove(name);
    this.#embeddings?.removed(name);
  }

  /** Gives vectors to tools that have none yet. */
  async embed(): Promise<void> {
    await this.#embeddings?.run();
  }

  async search({ query, limit, filter }: ToolQuestion): Promise<{ hits: Hit[]; embeddings: EmbeddingUse }> {
    const index = this.#made();
    const byWords = (count: number) => index.search(query, { limit: count, accepts: filter() });
    const embeddings = this.#embeddings;
    if (embeddings === undefined) return { hits: byWords(limit), embeddings: 'off' };
    const isNothingToDo = wordsOf(query).length === 0 || ![...index.tools.keys()].some(filter());
    if (isNothingToDo) return { hits: [], embeddings: 'not_needed' };
    const { hasVectors, isWhole } = await embeddings.coverage(filter());
    if (!hasVectors) return { hits: byWords(limit), embeddings: 'pending' };
    const near = await embeddings.nearest(query, { limit: FUSED_PLACES, accepts: filter });
    if (!near.ok) return { hits: byWords(limit), embeddings: near.reason };
    const hits = fused([byWords(FUSED_PLACES), near.hits], limit);
    return { hits, embeddings: isWhole ? 'used' : 'partial' };
  }

  #made(): ToolIndex {
    if (this.#index !== undefined) return this.#index;
    const index = new ToolIndex();
    for (const tool of BUILT_IN_ENTRIES) {
      index.put(tool.name, { ...tool, parameters: parametersText(tool.inputSchema) });
    }
    for (const tool of this.#tools()) index.put(tool.name, indexed(tool));
    this.#index = index;
    return index;
  }
}

function indexed({ name, title = '', description, category, input_schema }: RegisteredTool) {
  return { name, title, description, category, parameters: parametersText(input_schema) };
}
