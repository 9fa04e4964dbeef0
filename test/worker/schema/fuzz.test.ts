import { expect, test } from 'vitest';
import { compileSchema, schemaViolations } from '../../../worker/schema/compile.ts';
import { STUCK_MS } from '../../patience.ts';
import { generator, picker } from './generator.ts';

const WORDS = [
  'type',
  'properties',
  'required',
  'items',
  'prefixItems',
  'additionalProperties',
  'patternProperties',
  'anyOf',
  'oneOf',
  'allOf',
  'not',
  'if',
  'then',
  'else',
  'enum',
  'const',
  '$ref',
  '$dynamicRef',
  '$defs',
  '$id',
  '$anchor',
  '$schema',
  'pattern',
  'minimum',
  'multipleOf',
  'minLength',
  'uniqueItems',
  'contains',
  'minContains',
  'dependencies',
  'dependentSchemas',
  'propertyNames',
  'unevaluatedProperties',
  'unevaluatedItems',
  'format',
  'x-unknown',
];
const SCALARS = [
  null,
  true,
  false,
  0,
  -0,
  1.5,
  1e308,
  -1,
  '',
  'a',
  '#',
  'object',
  '(',
  '^a+$',
  '\u0000',
  '🙂',
];
const REFERENCES = [
  '#',
  '#/$defs/a',
  '#/$defs/b',
  '#/properties/a',
  '#a',
  'https://example.com/x',
  '#/%zz',
  'urn:x',
  '//',
  '',
];

type Below = (count: number) => number;

function anyValue(below: Below, depth: number): unknown {
  const pick = picker(below);
  if (depth > 3 || below(3) === 0) return pick(SCALARS);
  if (below(2) === 0) return Array.from({ length: below(4) }, () => anyValue(below, depth + 1));
  return Object.fromEntries(
    Array.from({ length: below(4) }, () => [
      pick(['a', 'b', '__proto__', 'constructor']),
      anyValue(below, depth + 1),
    ]),
  );
}

function anySchema(below: Below, depth: number): unknown {
  if (depth > 4 || below(12) === 0) return picker(below)([true, false, {}, 1, 'x', null, []]);
  return Object.fromEntries(
    Array.from({ length: 1 + below(5) }, () => {
      const word = picker(below)(WORDS);
      return [word, wordValue(word, below, depth)];
    }),
  );
}

function wordValue(word: string, below: Below, depth: number): unknown {
  const pick = picker(below);
  if (below(8) === 0) return anyValue(below, 2);
  switch (word) {
    case 'type':
      return pick(['object', 'string', 'array', 'integer', ['string', 'null'], 'nonsense']);
    case 'properties':
    case 'patternProperties':
    case 'dependentSchemas':
    case 'dependencies':
    case '$defs':
      return Object.fromEntries(
        Array.from({ length: below(4) }, () => [pick(['a', 'b', '^a', '[']), anySchema(below, depth + 1)]),
      );
    case 'anyOf':
    case 'oneOf':
    case 'allOf':
    case 'prefixItems':
      return Array.from({ length: below(4) }, () => anySchema(below, depth + 1));
    case 'required':
      return ['a', 'b'];
    case 'enum':
      return SCALARS;
    case 'pattern':
      return pick(['^a', '(a+)+$', '[', '\\p{L}', '(?<=a)', 'a{1,9}']);
    case '$ref':
    case '$dynamicRef':
    case '$id':
      return pick(REFERENCES);
    case '$schema':
      return pick([
        'http://json-schema.org/draft-07/schema#',
        'https://json-schema.org/draft/2020-12/schema',
        'x',
      ]);
    case 'minimum':
    case 'multipleOf':
    case 'minLength':
    case 'minContains':
      return pick([0, 1, -1, 0.1, 1e-300, 1e300]);
    default:
      return anySchema(below, depth + 1);
  }
}

test('a thousand schemas that nobody would write are refused or followed, with a reason and in time', () => {
  const below = generator(5);
  const outcomes = { refused: 0, given_up: 0, fitting: 0, violated: 0 };
  let slowestMs = 0;
  for (let round = 0; round < 1_000; round += 1) {
    const schema = anySchema(below, 0);
    const begun = Date.now();
    schemaViolations(schema, 'input_schema');
    const compiled = compileSchema(schema);
    if (!compiled.ok) {
      outcomes.refused += 1;
      expect(compiled.expected, JSON.stringify(schema)).not.toBe('');
    }
    for (let value = 0; compiled.ok && value < 3; value += 1) {
      const checked = compiled.schema.check(anyValue(below, 0), 'arguments');
      if (!checked.ok) outcomes.given_up += 1;
      else if (checked.violations.length === 0) outcomes.fitting += 1;
      else {
        outcomes.violated += 1;
        expect(checked.violations.every(({ path }) => path.startsWith('arguments'))).toBe(true);
      }
    }
    slowestMs = Math.max(slowestMs, Date.now() - begun);
  }
  expect(slowestMs).toBeLessThan(STUCK_MS);
  for (const count of Object.values(outcomes)) expect(count, JSON.stringify(outcomes)).toBeGreaterThan(0);
});
