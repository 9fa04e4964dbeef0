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

export interface Rounds {
  rounds: number;
  warmUpRounds: number;
  /** How often a row runs in each round. Of several the first is not counted: it follows another row. */
  inARow?: number;
}

export async function timeInRounds(
  rows: readonly Row[],
  { rounds, warmUpRounds, inARow = 1 }: Rounds,
): Promise<Timing[]> {
  const samples = rows.map((): number[] => []);
  for (let round = -warmUpRounds; round < rounds; round += 1) {
    for (const [index, row] of rows.entries()) {
      for (let run = inARow === 1 ? 1 : 0; run <= inARow; run += 1) {
        const elapsedMs = await timeOnce(row);
        if (round >= 0 && run > 0) samples[index]?.push(elapsedMs);
      }
    }
  }
  return rows.map((row, index) => summarise(row.name, samples[index] ?? []));
}

async function timeOnce(row: Row): Promise<number> {
  await row.prepare?.();
  const startedAt = performance.now();
  await row.run();
  return performance.now() - startedAt;
}

export function summarise(name: string, samples: readonly number[]): Timing {
  const sorted = samples.toSorted((left, right) => left - right);
  const at = (share: number): number =>
    sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? Number.NaN;
  return { name, medianMs: at(0.5), p95Ms: at(0.95), samples: sorted.length };
}
