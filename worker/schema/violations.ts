/** What a schema found wrong: where, what was expected, and what came. */
import { isObject, type Place } from './evaluation.ts';

export const MAX_VIOLATIONS = 32;
const MAX_PATH_CHARACTERS = 256;
const MAX_EXPECTED_CHARACTERS = 512;
const MAX_SHOWN_CHARACTERS = 80;

/** Notes it where somebody reads it; false, as the answer of the keyword. */
export function fault(place: Place, expected: string, value: unknown): false {
  if (place.violations !== undefined && place.violations.length < MAX_VIOLATIONS) {
    place.violations.push({
      path: place.path.slice(0, MAX_PATH_CHARACTERS),
      expected: expected.slice(0, MAX_EXPECTED_CHARACTERS),
      received: shown(value),
    });
  }
  return false;
}

export function shown(value: unknown): string {
  if (value === undefined) return 'nothing';
  if (Array.isArray(value)) return `an array of ${value.length}`;
  if (isObject(value)) return 'an object';
  if (typeof value !== 'string') return JSON.stringify(value);
  const text = JSON.stringify(value.slice(0, MAX_SHOWN_CHARACTERS).toWellFormed());
  return value.length > MAX_SHOWN_CHARACTERS
    ? `${text} and ${value.length - MAX_SHOWN_CHARACTERS} more`
    : text;
}
