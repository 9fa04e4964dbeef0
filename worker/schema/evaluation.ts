/** What the keywords see of a check under way. */
import type { Violation } from '../../shared/errors.ts';
import type { Pattern } from './pattern/pattern.ts';

export type SchemaObject = Readonly<Record<string, unknown>>;

/** A set of keywords and their meaning. */
export interface Dialect {
  name: '2020-12' | 'draft-07';
  /** Whether the schema's own vocabulary has the keywords that assert. */
  asserts: boolean;
}

/** Which members and elements some keyword has looked at. */
export interface Seen {
  properties: Set<string>;
  items: Set<number>;
}

/** The documents that were entered on the way, the last first. */
export interface Scope {
  base: string;
  outer: Scope | undefined;
}

export interface Place {
  /** Path of the value. */
  path: string;
  scope: Scope;
  dialect: Dialect;
  /** Undefined where nothing asks for it. */
  seen: Seen | undefined;
  /** Undefined where only the answer counts: then the first fault ends the check. */
  violations: Violation[] | undefined;
}

export interface Evaluation {
  /** Whether the value fits the schema. */
  check(schema: unknown, value: unknown, place: Place): boolean;
  spend(steps: number): void;
  pattern(source: string): Pattern;
}

/** A keyword: whether the value fits what it says. */
export type Keyword = (
  evaluation: Evaluation,
  rule: { keyword: unknown; schema: SchemaObject },
  value: unknown,
  place: Place,
) => boolean;

export function isObject(value: unknown): value is SchemaObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** Integers that a double would round are bigints; they stand in schemas only. */
export function isNumber(value: unknown): value is number | bigint {
  return typeof value === 'number' || typeof value === 'bigint';
}

export function inside(place: Place, key: string | number): Place {
  return { ...place, path: `${place.path}.${key}`, seen: place.seen && noneSeen() };
}

/** For a part of the schema whose outcome is judged by another keyword. */
export function silent(place: Place): Place {
  return { ...place, violations: undefined, seen: place.seen && noneSeen() };
}

export function noneSeen(): Seen {
  return { properties: new Set(), items: new Set() };
}

export function addSeen(
  to: Seen | undefined,
  from: Seen | undefined,
  evaluation: Pick<Evaluation, 'spend'>,
): void {
  if (to === undefined || from === undefined) return;
  evaluation.spend(from.properties.size + from.items.size);
  for (const name of from.properties) to.properties.add(name);
  for (const index of from.items) to.items.add(index);
}
