/** Texts by their lines, as XAgent's file tools show and change them. */
const NUMBER_WIDTH = 5;

function linesOf(text: string): string[] {
  return text.split(/(?<=\n)/).filter((line) => line !== '');
}

/** From a line on, counted from the end where the number is negative; 0 is the first. */
export function numberedLines(text: string, from: number): string {
  const lines = linesOf(text);
  const start = from < 0 ? Math.max(0, lines.length + from) : Math.max(0, from - 1);
  return lines
    .slice(start)
    .map((line, index) => `${String(start + index + 1).padStart(NUMBER_WIDTH)}: ${line}`)
    .join('');
}

/** Every line of the result ends with a line break. */
export function editedText(
  text: string,
  content: string,
  at: { line: number | null; overwrite: boolean },
): string {
  const lines = linesOf(text);
  const added = linesOf(content);
  const start =
    at.line === null ? lines.length : at.line < 1 ? Math.max(0, lines.length + at.line) : at.line - 1;
  lines.splice(start, at.overwrite ? added.length : 0, ...added);
  return lines.map((line) => (line.endsWith('\n') ? line : `${line}\n`)).join('');
}
