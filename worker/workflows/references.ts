/** Values that a task takes from elsewhere: found in its arguments, and put in their place. Pure. */
import { failure, type Outcome, success } from '../../shared/errors.ts';
import { type Reference, ReferenceSchema } from '../../shared/workflow.ts';

/** Arguments nest no deeper: beyond this nothing is looked for. */
const MAX_DEPTH = 64;

export interface Surroundings {
  input: unknown;
  /** What the tasks gave that have ended. */
  results: ReadonlyMap<string, unknown>;
  /** Within a fan-out. */
  item?: { value: unknown };
}

/** All references in a value. */
export function referencesIn(value: unknown, depth = 0): Reference[] {
  if (depth > MAX_DEPTH || typeof value !== 'object' || value === null) return [];
  if (Array.isArray(value)) return value.flatMap((item) => referencesIn(item, depth + 1));
  if (isLiteral(value)) return [];
  const reference = ReferenceSchema.safeParse(value);
  if (reference.success) return [reference.data];
  return Object.values(value).flatMap((item) => referencesIn(item, depth + 1));
}

/** The value with every reference in it replaced. */
export function fillIn(value: unknown, surroundings: Surroundings, depth = 0): Outcome<unknown> {
  if (depth > MAX_DEPTH || typeof value !== 'object' || value === null) return success(value);
  if (Array.isArray(value)) {
    const items: unknown[] = [];
    for (const item of value) {
      const filled = fillIn(item, surroundings, depth + 1);
      if (!filled.ok) return filled;
      items.push(filled.value);
    }
    return success(items);
  }
  if (isLiteral(value)) return success(value.$literal);
  const reference = ReferenceSchema.safeParse(value);
  if (reference.success) return lookUp(reference.data, surroundings);
  const filled: [string, unknown][] = [];
  for (const [key, item] of Object.entries(value)) {
    const outcome = fillIn(item, surroundings, depth + 1);
    if (!outcome.ok) return outcome;
    filled.push([key, outcome.value]);
  }
  const [first] = filled;
  if (first !== undefined && filled.length === 1 && first[0] === '$join' && Array.isArray(first[1])) {
    return success(first[1].map(asText).join(''));
  }
  return success(Object.fromEntries(filled));
}

function asText(part: unknown): string {
  return typeof part === 'string' ? part : (JSON.stringify(part) ?? '');
}

export function lookUp(reference: Reference, surroundings: Surroundings): Outcome<unknown> {
  if ('$input' in reference) return at(surroundings.input, reference.$input, 'the input');
  if ('$item' in reference) {
    if (surroundings.item === undefined) return failure('invalid_request', 'there is no item here');
    return at(surroundings.item.value, reference.$item, 'the item');
  }
  const { $from, path } = reference;
  if (!surroundings.results.has($from)) {
    return failure('invalid_request', `the task ${$from} gave nothing: it was skipped`);
  }
  return at(surroundings.results.get($from), path, `what the task ${$from} gave`);
}

/** RFC 6901 section 4. Only what a value has by itself is in it. */
function at(value: unknown, pointer: string, what: string): Outcome<unknown> {
  let current = value;
  for (const escaped of pointer.split('/').slice(1)) {
    const step = escaped.replaceAll('~1', '/').replaceAll('~0', '~');
    const isIndex = Array.isArray(current) && !/^(0|[1-9]\d{0,8})$/.test(step);
    if (typeof current !== 'object' || current === null || isIndex || !Object.hasOwn(current, step)) {
      return failure('invalid_request', `${what} has no ${pointer}`);
    }
    current = Reflect.get(current, step);
  }
  return success(current);
}

function isLiteral(value: object): value is { $literal: unknown } {
  return '$literal' in value && Object.keys(value).length === 1;
}
