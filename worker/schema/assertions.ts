/** The keywords that look at one value only. */
import { canonicalText, isMultipleOf } from './canonical.ts';
import { type Evaluation, isNumber, isObject, type Keyword, type SchemaObject } from './evaluation.ts';
import { fault, shown } from './violations.ts';

const MAX_SHOWN_VALUES = 20;

function isOfType(value: unknown, type: unknown): boolean {
  switch (type) {
    case 'integer':
      return Number.isInteger(value) || typeof value === 'bigint';
    case 'number':
      return isNumber(value);
    case 'object':
      return isObject(value);
    case 'array':
      return Array.isArray(value);
    case 'null':
      return value === null;
    case 'string':
    case 'boolean':
      return typeof value === type;
    default:
      return false;
  }
}

const type: Keyword = (_, { keyword }, value, place) => {
  const types = Array.isArray(keyword) ? keyword : [keyword];
  return types.some((one) => isOfType(value, one)) || fault(place, types.join(' or '), value);
};

const enumeration: Keyword = (evaluation, { keyword }, value, place) => {
  if (!Array.isArray(keyword)) return true;
  const own = canonicalText(evaluation, value);
  if (keyword.some((one) => canonicalText(evaluation, one) === own)) return true;
  const names = keyword.slice(0, MAX_SHOWN_VALUES).map(shown);
  const more = keyword.length > names.length ? ` or ${keyword.length - names.length} more` : '';
  return fault(place, `one of ${names.join(', ')}${more}`, value);
};

const constant: Keyword = (evaluation, { keyword }, value, place) =>
  canonicalText(evaluation, keyword) === canonicalText(evaluation, value) ||
  fault(place, shown(keyword), value);

/** A keyword about a measure of values of one kind. */
function measured(
  measure: (value: unknown, evaluation: Evaluation) => number | bigint | undefined,
  holds: (measured: number | bigint, limit: number | bigint) => boolean,
  expected: (limit: number | bigint) => string,
): Keyword {
  return (evaluation, { keyword }, value, place) => {
    if (!isNumber(keyword)) return true;
    const size = measure(value, evaluation);
    return size === undefined || holds(size, keyword) || fault(place, expected(keyword), value);
  };
}

const numberOf = (value: unknown) => (isNumber(value) ? value : undefined);
/** By numbers of up to 600 digits. */
function dividendOf(value: unknown, evaluation: Evaluation): number | bigint | undefined {
  evaluation.spend(32);
  return numberOf(value);
}
const itemsOf = (value: unknown) => (Array.isArray(value) ? value.length : undefined);
function membersOf(value: unknown, evaluation: Evaluation): number | undefined {
  if (!isObject(value)) return undefined;
  const { length } = Object.keys(value);
  evaluation.spend(length);
  return length;
}

/** In characters, not in halves of them. */
function lengthOf(value: unknown, evaluation: Evaluation): number | undefined {
  if (typeof value !== 'string') return undefined;
  evaluation.spend(value.length >> 4);
  let length = 0;
  for (const _ of value) length += 1;
  return length;
}

const isAtLeast = (size: number | bigint, limit: number | bigint) => size >= limit;
const isAtMost = (size: number | bigint, limit: number | bigint) => size <= limit;

const pattern: Keyword = (evaluation, { keyword }, value, place) => {
  if (typeof value !== 'string' || typeof keyword !== 'string') return true;
  const budget = { spend: (steps: number) => evaluation.spend(steps) };
  return (
    evaluation.pattern(keyword).isIn(value, budget) || fault(place, `text that matches ${keyword}`, value)
  );
};

const uniqueItems: Keyword = (evaluation, { keyword }, value, place) => {
  if (keyword !== true || !Array.isArray(value)) return true;
  const texts = new Set(value.map((item) => canonicalText(evaluation, item)));
  return texts.size === value.length || fault(place, 'no element twice', value);
};

const required: Keyword = (evaluation, { keyword }, value, place) => {
  if (!isObject(value) || !Array.isArray(keyword)) return true;
  evaluation.spend(keyword.length);
  const missing = keyword.filter((name) => typeof name === 'string' && !Object.hasOwn(value, name));
  for (const name of missing) fault({ ...place, path: `${place.path}.${name}` }, 'a value', undefined);
  return missing.length === 0;
};

export const dependentRequired: Keyword = (evaluation, { keyword, schema }, value, place) => {
  if (!isObject(keyword) || !isObject(value)) return true;
  const all = Object.entries(keyword);
  evaluation.spend(all.length);
  return all.every(
    ([name, names]) =>
      !Object.hasOwn(value, name) || required(evaluation, { keyword: names, schema }, value, place),
  );
};

/** As long as none of them is about other schemas, their order does not matter. */
export const ASSERTIONS: ReadonlyMap<string, Keyword> = new Map(
  Object.entries({
    type,
    enum: enumeration,
    const: constant,
    minimum: measured(numberOf, isAtLeast, (limit) => `at least ${limit}`),
    maximum: measured(numberOf, isAtMost, (limit) => `at most ${limit}`),
    exclusiveMinimum: measured(
      numberOf,
      (size, limit) => size > limit,
      (limit) => `more than ${limit}`,
    ),
    exclusiveMaximum: measured(
      numberOf,
      (size, limit) => size < limit,
      (limit) => `less than ${limit}`,
    ),
    multipleOf: measured(dividendOf, isMultipleOf, (limit) => `a multiple of ${limit}`),
    minLength: measured(lengthOf, isAtLeast, (limit) => `at least ${limit} characters`),
    maxLength: measured(lengthOf, isAtMost, (limit) => `at most ${limit} characters`),
    minItems: measured(itemsOf, isAtLeast, (limit) => `at least ${limit} elements`),
    maxItems: measured(itemsOf, isAtMost, (limit) => `at most ${limit} elements`),
    minProperties: measured(membersOf, isAtLeast, (limit) => `at least ${limit} members`),
    maxProperties: measured(membersOf, isAtMost, (limit) => `at most ${limit} members`),
    pattern,
    uniqueItems,
    required,
  } satisfies Record<string, Keyword>),
);

export function has(schema: SchemaObject, keyword: string): boolean {
  return Object.hasOwn(schema, keyword);
}
