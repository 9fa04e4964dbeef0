/** The one table that a bench run prints. */

export interface Line {
  what: string;
  ours: string;
  against: string;
  ratio: number;
  /** Null where it is only to be known. */
  goal: { atMost: number } | { atLeast: number } | null;
}

/** What one part of the bench has found; a note says what a ratio cannot. */
export interface Measurement {
  lines: Line[];
  notes: string[];
}

export function printTable(lines: readonly Line[]): void {
  const rows = lines.map((line) => [
    line.what,
    line.ours,
    line.against,
    line.ratio.toFixed(3),
    goalText(line.goal),
    verdict(line),
  ]);
  const header = ['what', 'ours', 'against', 'ratio', 'goal', ''];
  const widths = header.map((title, column) =>
    Math.max(title.length, ...rows.map((row) => row[column]?.length ?? 0)),
  );
  for (const row of [header, ...rows]) {
    console.log(
      row
        .map((cell, column) => cell.padEnd(widths[column] ?? 0))
        .join('  ')
        .trimEnd(),
    );
  }
}

function goalText(goal: Line['goal']): string {
  if (goal === null) return '';
  return 'atMost' in goal ? `<= ${goal.atMost.toFixed(3)}` : `>= ${goal.atLeast.toFixed(3)}`;
}

function verdict({ ratio, goal }: Line): string {
  if (goal === null) return '';
  const isMet = 'atMost' in goal ? ratio <= goal.atMost : ratio >= goal.atLeast;
  return isMet ? 'met' : 'MISSED';
}
