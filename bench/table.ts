/** The one table that a bench run prints. */

export interface Line {
  what: string;
  ours: string;
  against: string;
  ratio: number;
  goal: { atMost: number } | { atLeast: number };
}

export function printTable(lines: readonly Line[]): void {
  const rows = lines.map((line) => [
    line.what,
    line.ours,
    line.against,
    line.ratio.toFixed(3),
    'atMost' in line.goal ? `<= ${line.goal.atMost.toFixed(3)}` : `>= ${line.goal.atLeast.toFixed(3)}`,
    meetsGoal(line) ? 'met' : 'MISSED',
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

function meetsGoal({ ratio, goal }: Line): boolean {
  return 'atMost' in goal ? ratio <= goal.atMost : ratio >= goal.atLeast;
}
