/** Which model's embeddings the search of tools uses, as the binding `EMBEDDINGS` says. */
import * as z from 'zod';
import type { AddressRules } from '../tools/http/address.ts';
import type { WorkersAi } from '../workers-ai.ts';

/** Ten thousand tools of so many hold 20 MiB of an object's memory. */
export const MAX_DIMENSIONS = 2_048;
const MAX_QUERY_TIMEOUT_MS = 5_000;

const COMMON = {
  model: z.string().min(1).max(200),
  /** Of each vector. Asked for where the API knows the word; others are refused. Without it those of the first answer. */
  dimensions: z.int().min(2).max(MAX_DIMENSIONS).optional(),
  /** How long a search waits for the vector of its question. */
  query_timeout_ms: z.int().min(1).max(MAX_QUERY_TIMEOUT_MS).default(300),
};
/** Likeness below which two texts have nothing to do with each other: another one for each family of models. */
const cosine = z.number().min(0).max(1);

export const EmbeddingSettingsSchema = z.discriminatedUnion('kind', [
  z.strictObject({
    kind: z.literal('openai'),
    url: z.url({ protocol: /^https?$/ }),
    min_cosine: cosine.default(0.3),
    ...COMMON,
  }),
  z.strictObject({ kind: z.literal('workers-ai'), min_cosine: cosine.default(0.6), ...COMMON }),
]);
export type EmbeddingSettings = z.output<typeof EmbeddingSettingsSchema>;

/** A model with all that it takes to ask it. */
export type EmbeddingModel =
  | {
      settings: Extract<EmbeddingSettings, { kind: 'openai' }>;
      key: string | undefined;
      rules: AddressRules;
    }
  | { settings: Extract<EmbeddingSettings, { kind: 'workers-ai' }>; ai: WorkersAi };

/** Vectors of two models, or of two sizes, say nothing about each other. */
export function modelName({ settings }: EmbeddingModel): string {
  const place = settings.kind === 'openai' ? settings.url : settings.kind;
  return JSON.stringify([place, settings.model, settings.dimensions ?? null]);
}
