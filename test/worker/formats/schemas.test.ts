import { describe, expect, test } from 'vitest';
import { withoutAbsent } from '../../../worker/formats/nulls.ts';
import { objectSchema } from '../../../worker/formats/object-schema.ts';
import { strictSchema } from '../../../worker/formats/strict-schema.ts';
import { STUCK_MS } from '../../patience.ts';
import { DOUBLING_SCHEMA, FETCH_SCHEMA, FILE_SCHEMA, TREE_SCHEMA } from './tools.ts';

describe('a schema as one object', () => {
  test('that is one already stays as it is, but for the dialect', () => {
    expect(objectSchema({ $schema: 'http://json-schema.org/draft-07/schema#', ...FETCH_SCHEMA })).toEqual(
      FETCH_SCHEMA,
    );
    expect(objectSchema(TREE_SCHEMA)).toEqual(TREE_SCHEMA);
  });

  test('has the properties of all alternatives, and says which belong to which', () => {
    const schema = objectSchema(FILE_SCHEMA);
    expect(schema).not.toHaveProperty('oneOf');
    expect(schema).toMatchObject({
      type: 'object',
      required: ['operation', 'path'],
      additionalProperties: false,
      properties: {
        operation: { type: 'string', enum: ['read', 'write', 'list', 'delete', 'move', 'stat'] },
        path: { type: 'string', description: 'Absolute, or relative to the workspace.' },
        content: { type: 'string', description: 'For operation write (required).' },
        encoding: {
          enum: ['utf-8', 'base64'],
          description: expect.stringContaining('For operation read, write.'),
        },
      },
    });
  });

  test('joins what must hold together, and follows a reference at the top', () => {
    const schema = objectSchema({
      $ref: '#/$defs/call',
      $defs: {
        call: {
          allOf: [{ $ref: '#/$defs/named' }, { required: ['age'], properties: { age: { type: 'integer' } } }],
        },
        named: { type: 'object', required: ['name'], properties: { name: { type: 'string' } } },
      },
    });
    expect(schema).toMatchObject({
      type: 'object',
      required: ['name', 'age'],
      properties: { name: { type: 'string' }, age: { type: 'integer' } },
    });
    expect(schema).not.toHaveProperty('$ref');
    expect(schema).not.toHaveProperty('allOf');
  });

  test.each([
    ['nothing', {}],
    ['a reference to nowhere', { $ref: '#/$defs/none' }],
    ['a reference to itself', { $ref: '#' }],
    ['a reference to another document', { $ref: 'https://example.com/schema.json' }],
    ['alternatives that are no schemas', { anyOf: [true, 1, 'x'] }],
    ['properties that are none', { type: 'object', properties: [1, 2] }],
  ])('made of %s takes any object', (_what, source) => {
    expect(objectSchema(source)).toMatchObject({ type: 'object', properties: {} });
  });
});

describe('strict mode', () => {
  test('R40: requires every property, optional ones nullable, nothing beside them, and leaves the source alone', () => {
    const source = structuredClone(FETCH_SCHEMA);
    expect(strictSchema(objectSchema(source))).toEqual({
      type: 'object',
      properties: {
        url: { type: 'string' },
        n: { type: ['integer', 'null'], minimum: 1 },
        o: {
          type: ['object', 'null'],
          properties: { k: { type: ['string', 'null'] } },
          required: ['k'],
          additionalProperties: false,
        },
      },
      required: ['url', 'n', 'o'],
      additionalProperties: false,
    });
    expect(source).toEqual(FETCH_SCHEMA);
  });

  test('keeps a definition that has itself inside', () => {
    expect(strictSchema(TREE_SCHEMA)).toEqual({
      type: 'object',
      properties: { root: { $ref: '#/$defs/node' } },
      required: ['root'],
      additionalProperties: false,
      $defs: {
        node: {
          type: 'object',
          properties: {
            label: { type: 'string' },
            children: { type: ['array', 'null'], items: { $ref: '#/$defs/node' } },
          },
          required: ['label', 'children'],
          additionalProperties: false,
        },
      },
    });
  });

  test('says constants, enumerations and references that may be absent', () => {
    const schema = strictSchema({
      type: 'object',
      properties: {
        kind: { const: 'a', description: 'the kind' },
        unit: { type: 'string', enum: ['m', 's'] },
        node: { $ref: '#/definitions/node' },
        either: { oneOf: [{ type: 'string' }, { type: 'number' }] },
        empty: { type: ['string', 'null'] },
      },
      definitions: { node: { type: 'string' } },
    });
    expect(schema?.properties).toEqual({
      kind: { description: 'the kind', anyOf: [{ const: 'a' }, { type: 'null' }] },
      unit: { type: ['string', 'null'], enum: ['m', 's', null] },
      node: { anyOf: [{ $ref: '#/$defs/node' }, { type: 'null' }] },
      either: { anyOf: [{ type: 'string' }, { type: 'number' }, { type: 'null' }] },
      empty: { type: ['string', 'null'] },
    });
    expect(schema?.$defs).toEqual({ node: { type: 'string' } });
  });

  test('takes a tool without parameters', () => {
    const none = { type: 'object', properties: {}, required: [], additionalProperties: false };
    expect(strictSchema(objectSchema({}))).toEqual(none);
  });

  const property = (schema: unknown) => ({ type: 'object', properties: { p: schema } });
  test.each([
    ['a map', property({ type: 'object' })],
    ['a map of numbers', property({ type: 'object', additionalProperties: { type: 'number' } })],
    ['an object that takes more', { ...FETCH_SCHEMA, additionalProperties: true }],
    ['anything', property({})],
    ['true', property(true)],
    ['an array of anything', property({ type: 'array' })],
    ['a tuple', property({ type: 'array', prefixItems: [{ type: 'string' }], items: false })],
    ['a negation', property({ type: 'string', not: { const: 'x' } })],
    ['a condition', property({ type: 'object', properties: {}, if: {}, else: {} })],
    ['what must hold together', property({ allOf: [{ type: 'string' }] })],
    ['names by pattern', property({ type: 'object', properties: {}, patternProperties: { x: {} } })],
    ['a reference to another document', property({ $ref: 'https://example.com/schema.json' })],
    ['a reference to nowhere', property({ $ref: '#/$defs/none' })],
    ['several kinds of containers', property({ type: ['object', 'array'], items: { type: 'string' } })],
    [
      'a deep nest',
      Array.from({ length: 12 }).reduce<object>((inner) => property(inner), { type: 'string' }),
    ],
  ])('cannot be kept for %s', (_what, schema) => {
    expect(strictSchema(objectSchema({ ...schema }))).toBeUndefined();
  });

  test('ends at once for references that double', () => {
    expect(strictSchema(objectSchema(DOUBLING_SCHEMA))).toMatchObject({ required: ['x'] });
  });
});

describe('nulls for what is absent', () => {
  test('R40: go, at every level', () => {
    expect(withoutAbsent({ url: 'http://a.test/', n: null, o: null }, FETCH_SCHEMA)).toEqual({
      url: 'http://a.test/',
    });
    expect(withoutAbsent({ url: 'http://a.test/', o: { k: null } }, FETCH_SCHEMA)).toEqual({
      url: 'http://a.test/',
      o: {},
    });
    const tree = { root: { label: 'a', children: [{ label: 'b', children: null }] } };
    expect(withoutAbsent(tree, TREE_SCHEMA)).toEqual({ root: { label: 'a', children: [{ label: 'b' }] } });
  });

  test('stay where the schema takes them, or needs the property, or does not know it', () => {
    const schema = {
      type: 'object',
      required: ['needed'],
      properties: {
        needed: { type: 'string' },
        maybe: { type: ['string', 'null'] },
        either: { anyOf: [{ type: 'string' }, { type: 'null' }] },
        anything: {},
        constant: { const: null },
        listed: { enum: ['a', null] },
      },
    };
    const args = {
      needed: null,
      maybe: null,
      either: null,
      anything: null,
      constant: null,
      listed: null,
      unknown: null,
    };
    expect(withoutAbsent(args, schema)).toEqual(args);
  });

  test('go from a call whose schema has alternatives', () => {
    const args = { operation: 'read', path: 'a', content: null, mode: null, recursive: null };
    expect(withoutAbsent(args, FILE_SCHEMA)).toEqual({ operation: 'read', path: 'a' });
  });

  test('ends at once for references that double', () => {
    expect(withoutAbsent({ x: null }, DOUBLING_SCHEMA)).toEqual({ x: null });
  });
});

test('nulls of alternatives without number, and small objects of a large schema, are looked at in time', () => {
  const alternatives = (next: string) => ({
    anyOf: Array.from({ length: 300 }, () => ({ $ref: `#/$defs/${next}` })),
  });
  const deep = {
    type: 'object',
    properties: { x: { $ref: '#/$defs/a' } },
    $defs: { a: alternatives('b'), b: alternatives('c'), c: alternatives('d'), d: { type: 'string' } },
  };
  const properties = Object.fromEntries(
    Array.from({ length: 3_000 }, (_, at) => [`p${at}`, { type: 'string' }]),
  );
  const wide = {
    type: 'object',
    properties: { list: { type: 'array', items: { type: 'object', properties } } },
  };
  const begun = Date.now();
  expect(withoutAbsent({ x: null }, deep)).toEqual({ x: null });
  const list = Array.from({ length: 50_000 }, () => ({}));
  expect(withoutAbsent({ list: [{ p1: null, p2: 'a' }, ...list] }, wide)).toEqual({
    list: [{ p2: 'a' }, ...list],
  });
  expect(Date.now() - begun).toBeLessThan(STUCK_MS);
});

test.each(['allOf', 'anyOf'])('%s of one large schema a thousand times is read a few times', (word) => {
  const properties = Object.fromEntries(Array.from({ length: 1_500 }, (_, at) => [`p${at}`, {}]));
  let reads = 0;
  const d = {
    get properties() {
      reads += 1;
      return properties;
    },
  };
  const schema = { [word]: Array.from({ length: 1_500 }, () => ({ $ref: '#/$defs/d' })), $defs: { d } };
  const made = objectSchema(schema);
  expect(reads).toBeLessThan(10);
  expect(made).toMatchObject({ type: 'object', properties });
});
