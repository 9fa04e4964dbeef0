/** The code in what a model answered. Pure. */

/** A fence of CommonMark: three or more backticks or tildes at the start of a line, closed by at least as many. */
const FENCE = /^ {0,3}(`{3,}|~{3,})[^\n`]*\n([\s\S]*?)^ {0,3}\1[`~]*[ \t]*$/gm;

/** The longest block, for a model may quote a line before it gives the whole; `undefined` where there is none. */
export function codeIn(answer: string): string | undefined {
  const blocks = [...answer.replaceAll('\r\n', '\n').matchAll(FENCE)].map((match) => match[2] ?? '');
  const code = blocks.reduce((longest, block) => (block.length > longest.length ? block : longest), '');
  return code.trim() === '' ? undefined : code.replace(/\n$/, '');
}
