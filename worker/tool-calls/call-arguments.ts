/** Arguments as models give them: an object, or its text, or nothing at all. */
import { failure, type Outcome, success } from '../../shared/errors.ts';
import { isSchema } from '../formats/json-schema.ts';
import { lineAndColumn, parseStrictJson } from '../json/strict-json.ts';

const BOUNDS = { maxDepth: 64, maxValues: 100_000 };

export function callArguments(given: unknown): Outcome<Record<string, unknown>> {
  if (given === undefined || given === null) return success({});
  if (typeof given !== 'string') return objectOf(given);
  return given.trim() === '' ? success({}) : parsed(given);
}

function parsed(text: string): Outcome<Record<string, unknown>> {
  const json = parseStrictJson(text, BOUNDS);
  if (json.ok) return json.value === null ? success({}) : objectOf(json.value);
  const { line, column } = lineAndColumn(text, json.position);
  return failure(
    'invalid_json',
    `the arguments are not JSON at line ${line}, column ${column}: expected ${json.expected}`,
  );
}

function objectOf(value: unknown): Outcome<Record<string, unknown>> {
  if (isSchema(value)) return success({ ...value });
  const kind = Array.isArray(value) ? 'an array' : `a ${typeof value}`;
  return failure('invalid_request', `the arguments must be a JSON object, not ${kind}`);
}
