/**
 * Integers that a double would round, digit by digit as they were written: bounds of 64-bit integers in the schemas of
 * tools. They are bigints from the text that brought them to the text that gives them, also on the way between objects.
 */

declare global {
  interface JSON {
    rawJSON(text: string): unknown;
    parse(
      text: string,
      reviver: (this: unknown, key: string, value: unknown, context: { source?: string }) => unknown,
    ): unknown;
  }
  interface BigInt {
    toJSON(): unknown;
  }
}

/** Without one of these there is none: 2^53 has sixteen digits. */
const LONG_INTEGER = /\d{16}/;
const INTEGER = /^-?\d+$/;
/** With its sign. No bound of a schema has more, and those of megabytes would cost seconds to reckon with. */
export const MAX_INTEGER_DIGITS = 1_000;
/** A tool, several, or several in a message that brings them. */
const PLACES_OF_TOOLS = ['', 'tools.*', 'data.tools.*'];

// JSON has integers of any length, and only `JSON.stringify` itself does not know how to write them.
Object.defineProperty(BigInt.prototype, 'toJSON', {
  value(this: bigint) {
    return JSON.rawJSON(this.toString());
  },
});

/** As `JSON.parse`, but for those integers. */
export function parseExactly(text: string): unknown {
  if (!LONG_INTEGER.test(text)) return JSON.parse(text);
  return JSON.parse(text, (_, value, { source }) =>
    typeof value === 'number' && source !== undefined ? exactNumber(value, source) : value,
  );
}

function exactNumber(value: number, digits: string): number | bigint {
  const isExact = Number.isSafeInteger(value) || digits.length > MAX_INTEGER_DIGITS || !INTEGER.test(digits);
  return isExact ? value : BigInt(digits);
}

/** Whether the place is in the schema of a tool, alone or in a list of them. */
export function isInToolSchema(path: readonly (string | number)[]): boolean {
  const at = path.findIndex((key) => key === 'input_schema' || key === 'output_schema');
  const around = path.slice(0, at).map((key) => (typeof key === 'number' ? '*' : key));
  return at >= 0 && PLACES_OF_TOOLS.includes(around.join('.'));
}
