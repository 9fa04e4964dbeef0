/** What stands at the end of a text that is not given whole. */

/** Room to leave for a mark in bytes of UTF-8, whatever the numbers. */
export const CUT_MARK_BYTES = 64;

/** `… [1,048,512 of 2,000,000 characters]` */
export function cutMark(keptCharacters: number, allCharacters: number): string {
  return `… [${grouped(keptCharacters)} of ${grouped(allCharacters)} characters]`;
}

function grouped(count: number): string {
  return count.toLocaleString('en-US');
}
