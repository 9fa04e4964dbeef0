/** The vectors of a catalogue's tools: made behind its back, looked at by its searches, and never those of another tenant. */
import { sha256Hex } from '../../../../shared/digest.ts';
import { type Embedded, embed } from '../../../embeddings/embed.ts';
import { type EmbeddingModel, modelName } from '../../../embeddings/settings.ts';
import { cosineOf, type Vector } from '../../../embeddings/vector.ts';
import type { Hit } from '../../../search/ranking.ts';
import type { IndexedTool } from '../../../search/tool-index.ts';
import { logWarning } from '../../log.ts';
import { VectorStore } from './store.ts';

/** Tools that are registered one after the other are embedded together. */
const DELAY_MS = 500;
const BATCH_TOOLS = 32;
const BATCH_TIMEOUT_MS = 30_000;
/** What one alarm asks for; the next goes on. */
const MAX_BATCHES = 16;
const MAX_TEXT_CHARACTERS = 2_000;
const MAX_KEPT_VECTORS = 12_000;
const MAX_KEPT_QUESTIONS = 200;
const RETRY = { firstMs: 10_000, maxMs: 600_000 };
/** A model that failed so often in a row keeps no search waiting until the pause is over. */
const MAX_FAILURES = 3;
const PAUSE_MS = 5_000;

interface Loaded {
  model: EmbeddingModel;
  vectors: Map<string, Vector>;
  missing: Set<string>;
}

export interface Coverage {
  /** Of the tools that are looked at. */
  hasVectors: boolean;
  isWhole: boolean;
}

export class ToolEmbeddings {
  readonly #storage: DurableObjectStorage;
  readonly #store: VectorStore;
  readonly #model: () => Promise<EmbeddingModel | null>;
  readonly #tools: () => ReadonlyMap<string, IndexedTool>;
  readonly #questions = new Map<string, Vector>();
  #loaded: Loaded | undefined;
  #isDue = false;
  #failedRuns = 0;
  #batchTools = BATCH_TOOLS;
  #failedQuestions = 0;
  #pausedUntilMs = 0;

  constructor(
    storage: DurableObjectStorage,
    of: { model: () => Promise<EmbeddingModel | null>; tools: () => ReadonlyMap<string, IndexedTool> },
  ) {
    this.#storage = storage;
    this.#store = new VectorStore(storage);
    this.#model = of.model;
    this.#tools = of.tools;
  }

  /** The tool is there, and may say something else now. */
  changed(name: string): void {
    this.removed(name);
    this.#loaded?.missing.add(name);
    this.#due(DELAY_MS);
  }

  removed(name: string): void {
    this.#store.unlink(name);
    this.#loaded?.vectors.delete(name);
    this.#loaded?.missing.delete(name);
  }

  /** Gives vectors to tools that have none; asked for by the alarm. */
  async run(): Promise<void> {
    this.#isDue = false;
    const loaded = await this.#load();
    if (loaded === undefined) return;
    try {
      await this.#runBatches(loaded);
    } finally {
      this.#store.prune(MAX_KEPT_VECTORS);
    }
  }

  async #runBatches(loaded: Loaded): Promise<void> {
    for (let batch = 0; batch < MAX_BATCHES; batch += 1) {
      const names = [...loaded.missing].slice(0, this.#batchTools);
      if (names.length === 0) return;
      const answer = await this.#embed(loaded, names);
      if (!answer.ok) {
        this.#failed(loaded, names, answer.detail);
        return;
      }
      this.#failedRuns = 0;
      this.#batchTools = Math.min(BATCH_TOOLS, 2 * this.#batchTools);
    }
    this.#due(0);
  }

  /** A text that the model never takes holds up no others: they come before it, and fewer and fewer together with it. */
  #failed({ missing }: Loaded, names: readonly string[], detail: string): void {
    logWarning('tools_not_embedded', { detail, missing: missing.size });
    for (const name of names) if (missing.delete(name)) missing.add(name);
    this.#batchTools = Math.max(1, Math.floor(names.length / 2));
    this.#due(Math.min(RETRY.maxMs, RETRY.firstMs * 2 ** this.#failedRuns));
    this.#failedRuns += 1;
  }

  /** How far the tools that are accepted have vectors. */
  async coverage(accepts: (name: string) => boolean): Promise<Coverage> {
    const loaded = await this.#load();
    if (loaded === undefined) return { hasVectors: false, isWhole: false };
    if (loaded.missing.size > 0) this.#due(DELAY_MS);
    const isAny = (names: Iterable<string>) => [...names].some(accepts);
    return { hasVectors: isAny(loaded.vectors.keys()), isWhole: !isAny(loaded.missing) };
  }

  /** The tools that mean much the same as the question, the nearest first; or why that is not known. */
  async nearest(
    question: string,
    { limit, accepts }: { limit: number; accepts: () => (name: string) => boolean },
  ): Promise<{ ok: true; hits: Hit[] } | { ok: false; reason: 'slow' | 'failed' }> {
    const loaded = await this.#load();
    if (loaded === undefined) return { ok: false, reason: 'failed' };
    const asked = await this.#question(loaded, question);
    if (!asked.ok) return { ok: false, reason: asked.reason };
    const isAccepted = accepts();
    const floor = loaded.model.settings.min_cosine;
    const hits: Hit[] = [];
    for (const [id, vector] of loaded.vectors) {
      if (!isAccepted(id)) continue;
      const score = cosineOf(asked.vector, vector);
      if (score >= floor) hits.push({ id, score });
    }
    hits.sort((a, b) => b.score - a.score || (a.id < b.id ? -1 : 1));
    return { ok: true, hits: hits.slice(0, limit) };
  }

  async #question(
    { model, vectors }: Loaded,
    text: string,
  ): Promise<{ ok: true; vector: Vector } | { ok: false; reason: 'slow' | 'failed' }> {
    const known = this.#questions.get(text);
    if (known !== undefined) return { ok: true, vector: known };
    if (Date.now() < this.#pausedUntilMs) return { ok: false, reason: 'failed' };
    const answer = ofSize(await embed(model, [text], model.settings.query_timeout_ms), vectors);
    const [vector] = answer.ok ? answer.vectors : [];
    if (vector === undefined) {
      this.#failedQuestions += 1;
      if (this.#failedQuestions >= MAX_FAILURES) this.#pausedUntilMs = Date.now() + PAUSE_MS;
      if (!answer.ok) logWarning('question_not_embedded', { detail: answer.detail });
      return { ok: false, reason: answer.ok ? 'failed' : answer.reason };
    }
    this.#failedQuestions = 0;
    this.#questions.set(text, vector);
    const [oldest] = this.#questions.keys();
    if (this.#questions.size > MAX_KEPT_QUESTIONS && oldest !== undefined) this.#questions.delete(oldest);
    return { ok: true, vector };
  }

  async #embed(loaded: Loaded, names: readonly string[]): Promise<Embedded> {
    const name = modelName(loaded.model);
    const wanted = await Promise.all(
      names.map(async (tool) => {
        const text = this.#textOf(tool);
        return { tool, text, digest: await sha256Hex(JSON.stringify([name, text])) };
      }),
    );
    const unknown = new Map(
      wanted
        .filter(({ digest }) => this.#store.find(digest) === undefined)
        .map(({ digest, text }) => [digest, text]),
    );
    const made: Embedded =
      unknown.size === 0
        ? { ok: true, vectors: [] }
        : ofSize(await embed(loaded.model, [...unknown.values()], BATCH_TIMEOUT_MS), loaded.vectors);
    if (!made.ok) return made;
    for (const [at, digest] of [...unknown.keys()].entries()) {
      const vector = made.vectors[at];
      if (vector !== undefined) this.#store.keep(digest, vector);
    }
    for (const { tool, text, digest } of wanted) {
      const vector = this.#store.find(digest);
      // It may have been changed or removed meanwhile.
      if (vector === undefined || !loaded.missing.has(tool) || this.#textOf(tool) !== text) continue;
      this.#store.link(tool, name, digest);
      loaded.vectors.set(tool, vector);
      loaded.missing.delete(tool);
    }
    return made;
  }

  #textOf(name: string): string {
    const tool = this.#tools().get(name);
    if (tool === undefined) return '';
    const { title, description, parameters } = tool;
    return `${tool.name}\n${title}\n${description}\n${parameters}`
      .slice(0, MAX_TEXT_CHARACTERS)
      .toWellFormed();
  }

  /** Undefined where the gateway has no embeddings. */
  async #load(): Promise<Loaded | undefined> {
    const model = await this.#model();
    if (model === null) return undefined;
    if (this.#loaded !== undefined) return this.#loaded;
    const tools = this.#tools();
    const vectors = new Map<string, Vector>();
    for (const { name, vector } of this.#store.named(modelName(model))) {
      if (tools.has(name)) vectors.set(name, vector);
    }
    const missing = new Set([...tools.keys()].filter((name) => !vectors.has(name)));
    this.#loaded = { model, vectors, missing };
    return this.#loaded;
  }

  #due(delayMs: number): void {
    if (this.#isDue) return;
    this.#isDue = true;
    void this.#storage.setAlarm(Date.now() + delayMs);
  }
}

/** A model that gives another size than before is another model: its vectors would be compared with none of these. */
function ofSize(answer: Embedded, vectors: ReadonlyMap<string, Vector>): Embedded {
  if (!answer.ok) return answer;
  const [known] = vectors.values();
  const size = known?.values.length;
  const other = answer.vectors.find(({ values }) => size !== undefined && values.length !== size);
  return other === undefined
    ? answer
    : {
        ok: false,
        reason: 'failed',
        detail: `it gave ${other.values.length} dimensions, and ${size} before`,
      };
}
