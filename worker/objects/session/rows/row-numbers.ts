/** Rows of one execution in tables that hold rows of all: its number in the upper bits, the row's own in the lower ones. */

/** Numbers of rows and of calls stay below it. */
export const ROWS_PER_EXECUTION = 2 ** 21;
/** Output rows of an execution have numbers below this one; the last bytes of long streams have those from here on. */
export const TAIL_ROWS_FROM = 2 ** 20;
