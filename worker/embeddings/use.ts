/**
 * What embeddings had to do with an answer. `off`: this gateway has none. `used`; `partial`: used, but some tools have no vector
 * yet. By words alone: `pending`, as no tool has one yet; `slow` and `failed`, as the model did not answer in time or as it should.
 * `not_needed`: there was nothing to look for, or nothing to look at.
 */
export const EMBEDDING_USES = ['off', 'used', 'partial', 'pending', 'slow', 'failed', 'not_needed'] as const;
export type EmbeddingUse = (typeof EMBEDDING_USES)[number];
