/** The keywords that apply other schemas to the value, or to what is in it. */
import type { Violation } from '../../shared/errors.ts';
import { dependentRequired, has } from './assertions.ts';
import {
  addSeen,
  type Evaluation,
  inside,
  isNumber,
  isObject,
  type Keyword,
  noneSeen,
  type Place,
  silent,
} from './evaluation.ts';
import { fault } from './violations.ts';

const MAX_SHOWN_ALTERNATIVES = 8;

const allOf: Keyword = (evaluation, { keyword }, value, place) => {
  if (!Array.isArray(keyword)) return true;
  let fits = true;
  for (const schema of keyword) {
    fits = evaluation.check(schema, value, place) && fits;
    if (!fits && place.violations === undefined) return false;
  }
  return fits;
};

const anyOf: Keyword = (evaluation, { keyword }, value, place) => {
  if (!Array.isArray(keyword)) return true;
  const { fitting, expectations } = alternatives(evaluation, keyword, value, place);
  return fitting > 0 || noneFits(place, expectations, value);
};

const oneOf: Keyword = (evaluation, { keyword }, value, place) => {
  if (!Array.isArray(keyword)) return true;
  const { fitting, expectations } = alternatives(evaluation, keyword, value, place);
  if (fitting === 0) return noneFits(place, expectations, value);
  return fitting === 1 || fault(place, `one of the alternatives only, not ${fitting}`, value);
};

/** All are tried: each that fits says which members it knows. */
function alternatives(evaluation: Evaluation, schemas: readonly unknown[], value: unknown, place: Place) {
  let fitting = 0;
  const expectations: Violation[] = [];
  for (const schema of schemas) {
    const violations: Violation[] | undefined = place.violations && [];
    const own = { ...place, violations, seen: place.seen && noneSeen() };
    if (evaluation.check(schema, value, own)) {
      fitting += 1;
      addSeen(place.seen, own.seen, evaluation);
    } else if (violations?.[0] !== undefined) expectations.push(violations[0]);
  }
  return { fitting, expectations };
}

/** Of each alternative what it missed first. */
function noneFits(place: Place, expectations: readonly Violation[], value: unknown): false {
  const texts = expectations.slice(0, MAX_SHOWN_ALTERNATIVES).map(({ path, expected }) => {
    return path === place.path ? expected : `${expected} at ${path}`;
  });
  return fault(
    place,
    texts.length === 0 ? 'one of the alternatives' : [...new Set(texts)].join(', or '),
    value,
  );
}

const not: Keyword = (evaluation, { keyword }, value, place) =>
  !evaluation.check(keyword, value, silent(place)) || fault(place, 'another value', value);

const condition: Keyword = (evaluation, { keyword, schema }, value, place) => {
  const own = silent(place);
  const holds = evaluation.check(keyword, value, own);
  if (holds) addSeen(place.seen, own.seen, evaluation);
  const branch = holds ? 'then' : 'else';
  return !has(schema, branch) || evaluation.check(schema[branch], value, place);
};

/** Members that `properties` and `patternProperties` do not name go to `additionalProperties`. */
const members: Keyword = (evaluation, { schema }, value, place) => {
  if (!isObject(value)) return true;
  const named = isObject(schema.properties) ? schema.properties : {};
  const patterns = isObject(schema.patternProperties) ? Object.entries(schema.patternProperties) : [];
  const own = Object.entries(value);
  if (own.length === 0) return true;
  // Also where the first member ends it: the lists are made whole.
  evaluation.spend(own.length + patterns.length);
  let fits = true;
  for (const [name, member] of own) {
    const schemas: unknown[] = Object.hasOwn(named, name) ? [named[name]] : [];
    for (const [source, matching] of patterns) {
      if (evaluation.pattern(source).isIn(name, evaluation)) schemas.push(matching);
    }
    if (schemas.length === 0 && has(schema, 'additionalProperties'))
      schemas.push(schema.additionalProperties);
    if (schemas.length > 0) place.seen?.properties.add(name);
    for (const one of schemas) fits = evaluation.check(one, member, inside(place, name)) && fits;
    evaluation.spend(1);
    if (!fits && place.violations === undefined) return false;
  }
  return fits;
};

const propertyNames: Keyword = (evaluation, { keyword }, value, place) => {
  if (!isObject(value)) return true;
  const names = Object.keys(value);
  evaluation.spend(names.length);
  return names.every((name) => evaluation.check(keyword, name, inside(place, name)));
};

const dependentSchemas: Keyword = (evaluation, { keyword }, value, place) => {
  if (!isObject(keyword) || !isObject(value)) return true;
  const all = Object.entries(keyword);
  evaluation.spend(all.length);
  return all.every(([name, schema]) => !Object.hasOwn(value, name) || evaluation.check(schema, value, place));
};

/** draft-07: names or a schema. */
const dependencies: Keyword = (evaluation, { keyword, schema }, value, place) => {
  if (!isObject(keyword)) return true;
  const all = Object.entries(keyword);
  evaluation.spend(all.length);
  return all.every(([name, dependency]) => {
    const rule = { keyword: { [name]: dependency }, schema };
    const check = Array.isArray(dependency) ? dependentRequired : dependentSchemas;
    return check(evaluation, rule, value, place);
  });
};

/** The first elements have a schema each; the others share one. */
const items: Keyword = (evaluation, { schema }, value, place) => {
  if (!Array.isArray(value)) return true;
  const { first, rest } = elementSchemas(schema, place);
  let fits = true;
  for (const [index, item] of value.entries()) {
    const own = index < first.length ? first[index] : rest;
    evaluation.spend(1);
    if (own === undefined) break;
    place.seen?.items.add(index);
    fits = evaluation.check(own, item, inside(place, index)) && fits;
    if (!fits && place.violations === undefined) return false;
  }
  return fits;
};

function elementSchemas(
  schema: Readonly<Record<string, unknown>>,
  { dialect }: Place,
): { first: readonly unknown[]; rest: unknown } {
  if (dialect.name === '2020-12') {
    return { first: Array.isArray(schema.prefixItems) ? schema.prefixItems : [], rest: schema.items };
  }
  if (Array.isArray(schema.items)) return { first: schema.items, rest: schema.additionalItems };
  return { first: [], rest: schema.items };
}

const contains: Keyword = (evaluation, { keyword, schema }, value, place) => {
  if (!Array.isArray(value)) return true;
  let count = 0;
  for (const [index, item] of value.entries()) {
    if (!evaluation.check(keyword, item, { ...inside(place, index), violations: undefined })) continue;
    count += 1;
    place.seen?.items.add(index);
  }
  const counts = place.dialect.name === '2020-12' && place.dialect.asserts;
  const { minContains, maxContains } = counts ? schema : {};
  const least = isNumber(minContains) ? minContains : 1;
  const most = isNumber(maxContains) ? maxContains : Number.POSITIVE_INFINITY;
  if (count < least) return fault(place, `at least ${least} elements that fit \`contains\``, value);
  return count <= most || fault(place, `at most ${most} elements that fit \`contains\``, value);
};

const BOTH: readonly [string, Keyword][] = [
  ['allOf', allOf],
  ['anyOf', anyOf],
  ['oneOf', oneOf],
  ['not', not],
  ['if', condition],
  ['propertyNames', propertyNames],
  ['contains', contains],
];

export const APPLICATORS: Readonly<Record<'2020-12' | 'draft-07', ReadonlyMap<string, Keyword>>> = {
  '2020-12': new Map([...BOTH, ['dependentSchemas', dependentSchemas]]),
  'draft-07': new Map([...BOTH, ['dependencies', dependencies]]),
};

const MEMBER_KEYWORDS = ['properties', 'patternProperties', 'additionalProperties'];
const ELEMENT_KEYWORDS = ['prefixItems', 'items'];

/** Keywords that only say something together. */
export const GROUPS: readonly { keywords: readonly string[]; check: Keyword }[] = [
  { keywords: MEMBER_KEYWORDS, check: members },
  { keywords: ELEMENT_KEYWORDS, check: items },
];

/** Whatever nothing else has looked at. They come last. */
export const UNEVALUATED: ReadonlyMap<string, Keyword> = new Map<string, Keyword>([
  [
    'unevaluatedItems',
    (evaluation, { keyword }, value, place) => {
      if (!Array.isArray(value)) return true;
      evaluation.spend(value.length);
      const left = [...value.keys()].filter((index) => place.seen?.items.has(index) !== true);
      for (const index of left) place.seen?.items.add(index);
      return left.every((index) => evaluation.check(keyword, value[index], inside(place, index)));
    },
  ],
  [
    'unevaluatedProperties',
    (evaluation, { keyword }, value, place) => {
      if (!isObject(value)) return true;
      const names = Object.keys(value);
      evaluation.spend(names.length);
      const left = names.filter((name) => place.seen?.properties.has(name) !== true);
      for (const name of left) place.seen?.properties.add(name);
      return left.every((name) => evaluation.check(keyword, value[name], inside(place, name)));
    },
  ],
]);
