import { describe, expect, test } from 'vitest';
import type { Violation } from '../../../shared/errors.ts';
import { compileSchema, schemaViolations } from '../../../worker/schema/compile.ts';

/** What is given up takes a second, on a machine that is busy ten; what is not takes from minutes to for ever. */
const IN_TIME_MS = 30_000;

function violations(schema: unknown, value: unknown): Violation[] {
  const compiled = compileSchema(schema);
  if (!compiled.ok) throw new Error(`${compiled.pointer}: ${compiled.expected}`);
  const checked = compiled.schema.check(value, 'arguments');
  if (!checked.ok) throw new Error(checked.reason);
  return checked.violations;
}

const fits = (schema: unknown, value: unknown) => violations(schema, value).length === 0;

describe('the dialect', () => {
  const draft07 = {
    $schema: 'http://json-schema.org/draft-07/schema#',
    type: 'object',
    properties: {
      p: { type: 'array', items: [{ type: 'string' }, { type: 'integer' }], additionalItems: false },
    },
    required: ['p'],
  };
  const nameless = {
    type: 'object',
    properties: {
      p: { type: 'array', prefixItems: [{ type: 'string' }, { type: 'integer' }], items: false },
    },
    required: ['p'],
  };
  const draft2020 = { $schema: 'https://json-schema.org/draft/2020-12/schema', ...nameless };

  test.each([
    ['draft-07', draft07],
    ['2020-12', draft2020],
    ['none, so 2020-12', nameless],
  ])('R67: %s decides what a tuple is', (_, schema) => {
    expect(fits(schema, { p: ['a', 1] })).toBe(true);
    expect(fits(schema, { p: [1, 'a'] })).toBe(false);
    expect(fits(schema, { p: ['a', 1, 2] })).toBe(false);
  });

  test('R67: that nobody knows is named', () => {
    expect(compileSchema({ $schema: 'http://json-schema.org/draft-03/schema#' })).toEqual({
      ok: false,
      expected: 'the dialect 2020-12 or draft-07, not "http://json-schema.org/draft-03/schema#"',
      pointer: '/$schema',
    });
  });
});

describe('a violation', () => {
  test('says where, what was expected and what came', () => {
    const schema = {
      type: 'object',
      properties: {
        a: { type: 'array', items: { type: 'integer' } },
        mode: { enum: ['r', 'w'] },
        name: { type: 'string', pattern: '^[a-z]+$', maxLength: 3 },
      },
      required: ['b'],
      additionalProperties: false,
    };
    const value = { a: [1, 'x'], mode: 'q', name: 'ABCD', c: {} };
    expect(violations(schema, value)).toEqual([
      { path: 'arguments.b', expected: 'a value', received: 'nothing' },
      { path: 'arguments.a.1', expected: 'integer', received: '"x"' },
      { path: 'arguments.mode', expected: 'one of "r", "w"', received: '"q"' },
      { path: 'arguments.name', expected: 'text that matches ^[a-z]+$', received: '"ABCD"' },
      { path: 'arguments.name', expected: 'at most 3 characters', received: '"ABCD"' },
      { path: 'arguments.c', expected: 'nothing here', received: 'an object' },
    ]);
  });

  test('of alternatives says what each of them missed', () => {
    expect(violations({ anyOf: [{ type: 'string' }, { type: 'integer', minimum: 3 }] }, 1)).toEqual([
      { path: 'arguments', expected: 'string, or at least 3', received: '1' },
    ]);
  });

  test('is one of at most 32, whatever is wrong', () => {
    expect(
      violations(
        { items: false },
        Array.from({ length: 1_000 }, () => 1),
      ),
    ).toHaveLength(32);
  });
});

describe('what a schema may be', () => {
  const tree = {
    $ref: '#/$defs/node',
    $defs: {
      node: {
        type: 'object',
        properties: {
          label: { type: 'string' },
          children: { type: 'array', items: { $ref: '#/$defs/node' } },
        },
        required: ['label'],
      },
    },
  };

  test('a tree: references into themselves end where the value does', () => {
    expect(fits(tree, { label: 'a', children: [{ label: 'b', children: [] }] })).toBe(true);
    expect(violations(tree, { label: 'a', children: [{ label: 'b', children: [{}] }] })).toMatchObject([
      { path: 'arguments.children.0.children.0.label' },
    ]);
  });

  test('with words that nobody knows', () => {
    expect(fits({ type: 'string', 'x-order': 3, widget: { type: 'number' } }, 'a')).toBe(true);
  });

  test('exact about numbers', () => {
    expect(fits({ multipleOf: 0.1 }, 0.3)).toBe(true);
    expect(fits({ multipleOf: 0.01 }, 19.99)).toBe(true);
    expect(fits({ multipleOf: 0.01 }, 19.995)).toBe(false);
    expect(fits({ type: 'integer' }, 1.0)).toBe(true);
    expect(fits({ const: 9_007_199_254_740_991 }, 9_007_199_254_740_990)).toBe(false);
  });

  test('not one that leads out of itself', () => {
    expect(compileSchema({ $ref: 'https://example.com/schema' })).toMatchObject({
      ok: false,
      pointer: '/$ref',
    });
    expect(compileSchema({ $ref: '#/$defs/none' })).toMatchObject({ ok: false, pointer: '/$ref' });
  });

  test('not one that its own meta-schema refuses', () => {
    const checked = schemaViolations({ type: 'strin', properties: 3, required: 'x' }, 'input_schema');
    expect(checked).toMatchObject({
      ok: true,
      violations: expect.arrayContaining([
        expect.objectContaining({ path: 'input_schema.properties' }),
        expect.objectContaining({ path: 'input_schema.required' }),
        expect.objectContaining({ path: 'input_schema.type' }),
      ]),
    });
  });
});

describe('a hostile schema', () => {
  const doubling = (word: 'anyOf' | 'allOf') => ({
    $ref: '#/$defs/d0',
    $defs: Object.fromEntries(
      Array.from({ length: 40 }, (_, index) => {
        const next = { $ref: `#/$defs/d${index + 1}` };
        return [
          `d${index}`,
          index === 39 ? { type: 'string' } : { [word]: [next, { ...next, title: 'again' }] },
        ];
      }),
    ),
  });
  const deep = (depth: number): object => {
    let schema: object = {};
    for (let level = 0; level < depth; level += 1) schema = { not: schema };
    return schema;
  };

  const large = Object.fromEntries(Array.from({ length: 30_000 }, (_, index) => [`k${index}`, 1]));
  const manyTimes = (schema: object) => ({ allOf: Array.from({ length: 1_500 }, () => schema) });
  const manyWords = Object.fromEntries(Array.from({ length: 5_000 }, (_, index) => [`w${index}`, 1]));
  const handedOn = {
    unevaluatedProperties: false,
    allOf: Array.from({ length: 40 }, () => ({ $ref: '#/$defs/d0' })),
    $defs: Object.fromEntries(
      Array.from({ length: 60 }, (_, index) => [
        `d${index}`,
        index === 59 ? { additionalProperties: true } : { $ref: `#/$defs/d${index + 1}` },
      ]),
    ),
  };

  test.each([
    ['without an end', { $ref: '#' }, 1],
    ['that doubles without an end', { allOf: [{ $ref: '#' }, { $ref: '#' }] }, 1],
    ['of 2^40 alternatives', doubling('anyOf'), 1],
    ['of 2^40 parts', doubling('allOf'), 'x'],
    ['with a pattern over a large text', { pattern: '(?=.*a)(?=.*b)' }, 'c'.repeat(100_000)],
    ['that looks at the first of many members', manyTimes({ not: { additionalProperties: false } }), large],
    ['that counts many members', manyTimes({ maxProperties: 40_000 }), large],
    ['of many words about little', { items: manyWords }, Array.from({ length: 20_000 }, () => ({}))],
    ['that hands on what it has seen', handedOn, large],
  ])('%s is given up in time', (_, schema, value) => {
    const compiled = compileSchema(schema);
    const begun = Date.now();
    const checked = compiled.ok ? compiled.schema.check(value, 'arguments') : undefined;
    expect(checked).toMatchObject({
      ok: false,
      reason: expect.stringMatching(/too many steps|without an end/),
    });
    expect(Date.now() - begun).toBeLessThan(IN_TIME_MS);
  });

  test.each([
    ['too deep', deep(5_000), '/not'],
    ['with a pattern that is none', { properties: { a: { pattern: '(' } } }, '/properties/a/pattern'],
    ['with repetitions of nothing within each other', { pattern: '(((){4000}){4000}){4000}' }, '/pattern'],
    [
      'with patterns that together are too large',
      {
        patternProperties: Object.fromEntries(
          Array.from({ length: 100 }, (_, index) => [`a${index}{3900}`, {}]),
        ),
      },
      '/patternProperties',
    ],
  ])('%s is refused when it is read', (_, schema, pointer) => {
    const compiled = compileSchema(schema);
    expect(compiled.ok).toBe(false);
    if (!compiled.ok) expect(compiled.pointer).toContain(pointer);
  });

  test('of a hundred thousand values is checked in time', () => {
    const values = Array.from({ length: 100_000 }, (_, index) => `v${index}`);
    expect(fits({ enum: values }, 'v99999')).toBe(true);
    expect(violations({ enum: values }, 'x')[0]?.expected).toMatch(/ or 99980 more$/);
  });
});
