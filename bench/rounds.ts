/** Timing in rounds: every row of a comparison runs once per round, so that a machine that slows down slows all of them. */

export interface Row {
  name: string;
  /** What has to be there before each run, and is not measured. */
  prepare?: () => Promise<void>;
  run: () => Promise<void>;
}

export interface Timing {
  name: string;
  medianMs: number;
  p95Ms: number;
  samples: number;
}

export async function timeInRounds(
  rows: readonly Row[],
  { rounds, warmUpRounds }: { rounds: number; warmUpRounds: number },
): Promise<Timing[]> {
  const samples = rows.map((): number[] => []);
  for (let round = -warmUpRounds; round < rounds; round += 1) {
    for (const [index, row] of rows.entries()) {
      await row.prepare?.();
      const startedAt = performance.now();
      await row.run();
      const elapsedMs = performance.now() - startedAt;
      if (round >= 0) samples[index]?.push(elapsedMs);
    }
  }
  return rows.map((row, index) => summarise(row.name, samples[index] ?? []));
}

export function summarise(name: string, samples: readonly number[]): Timing {
  const sorted = samples.toSorted((left, right) => left - right);
  const at = (share: number): number =>
    sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? Number.NaN;
  return { name, medianMs: at(0.5), p95Ms: at(0.95), samples: sorted.length };
}
