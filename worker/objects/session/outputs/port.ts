/** What is told of the output of an execution to whoever reads it. */

/** Bytes of a stream that lie in R2 as one. */
export interface StoredChunk {
  offset: number;
  length: number;
}

export interface OutputExtent {
  /** What the program wrote, and what of it can be read, from its beginning on. */
  totalBytes: number;
  bytes: number;
  /** Of all that the program wrote, as its receipt says; null where not all of it can be read, or before the end. */
  sha256: string | null;
}

/** A chunk in R2 that holds the place, or bytes that begin there. */
export type OutputAt = { chunk: StoredChunk } | { bytes: Uint8Array };
