/** What a guest that was made of a checkpoint is told with the word to go on. */
import { u32 } from './integers.ts';

export interface RestoredGuest {
  /** It tells the programs that it held so. */
  readonly isCopy: boolean;
  /** What it reads about itself from then on. */
  readonly sandboxId: string;
  readonly generation: number;
}

const AS_COPY = 1;

/** Without anything told it goes on as what it was. */
export function encodeGoOn(restored?: RestoredGuest): Buffer {
  if (restored === undefined) return Buffer.from([0]);
  const { isCopy, sandboxId, generation } = restored;
  return Buffer.concat([Buffer.from([isCopy ? AS_COPY : 0]), u32(generation), Buffer.from(sandboxId)]);
}
