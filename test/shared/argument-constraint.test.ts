import { describe, expect, test } from 'vitest';
import {
  type ArgumentConstraint,
  ArgumentConstraintSchema,
  constraintViolations,
} from '../../shared/argument-constraint.ts';
import { ToolPolicySchema } from '../../shared/tool-policy.ts';

function violations(constraint: object, args: unknown, workdir: string | null = '/workspace') {
  const parsed: ArgumentConstraint = ArgumentConstraintSchema.parse(constraint);
  return constraintViolations([parsed], args, { root: 'arguments', workdir });
}

const allows = (constraint: object, args: unknown, workdir?: string | null) =>
  violations(constraint, args, workdir).length === 0;

describe('folders', () => {
  const below = { argument: '/path', path_prefixes: ['/workspace/in', '/data'] };

  test.each([
    '/workspace/in',
    '/workspace/in/a/b',
    '/data/x',
    'in/a',
    './in//a',
    '/workspace/./in/a',
    '//data',
  ])('hold %j', (path) => {
    expect(allows(below, { path })).toBe(true);
  });

  test.each([
    '/workspace/in/../secret',
    '/workspace/in/..',
    'in/../../etc/passwd',
    '..',
    '/workspace/inside',
    '/workspace',
    '/',
    '/etc/passwd',
    'out/a',
    '/datax',
    '',
    '/data\0/x',
    '\\data\\x',
    ['/data/x', '/etc/passwd'],
    { toString: '/data' },
    7,
    null,
  ])('do not hold %j', (path) => {
    expect(allows(below, { path })).toBe(false);
  });

  test('hold no path that begins where nobody knows', () => {
    expect(allows(below, { path: 'in/a' }, null)).toBe(false);
    expect(allows(below, { path: '/workspace/in/a' }, null)).toBe(true);
  });

  test('may be the root, which holds all that says where it leads', () => {
    const anywhere = { argument: '/path', path_prefixes: ['/'] };
    expect(allows(anywhere, { path: '/etc/passwd' })).toBe(true);
    expect(allows(anywhere, { path: '/etc/../passwd' })).toBe(false);
  });

  test.each(['relative', '/a/', '/a//b', '/a/../b', '/a/./b', '', '/a\ufffd'])(
    'are refused as %j, which has another spelling',
    (folder) => {
      const refused = ArgumentConstraintSchema.safeParse({ argument: '/path', path_prefixes: [folder] });
      expect(refused.success).toBe(false);
    },
  );
});

describe('hosts', () => {
  const ours = { argument: '/url', hosts: ['api.example.com', '*.example.org:8443', '10.0.0.1'] };

  test.each([
    'https://api.example.com',
    'http://api.example.com/a?b#c',
    'HTTPS://API.example.com./a',
    'https://a.b.example.org:8443/',
    'https://10.0.0.1/',
    'api.example.com',
    'api.example.com:443',
    'wss://api.example.com/socket',
  ])('hold %j', (url) => {
    expect(allows(ours, { url })).toBe(true);
  });

  test.each([
    'https://api.example.com.evil.test/',
    'https://evil.test/api.example.com',
    'https://api.example.com@evil.test/',
    'https://evil.test\\@api.example.com/',
    'https://api.example.com\\@evil.test/',
    'https://api.example.com:8443/',
    'https://example.org:8443/',
    'https://a.example.org/',
    'a.example.org',
    'https://0x0a.0.0.1/',
    'https://10.1/',
    'https:/api.example.com',
    'https:api.example.com',
    '//api.example.com/',
    'https://api.example.com /',
    'https://api.example.com/a\nb',
    'https://api%2eexample.com/',
    'file:///etc/passwd',
    'ftp://api.example.com/',
    'api.example.com/path',
    ' https://api.example.com/',
    '',
    ['https://api.example.com', 'https://evil.test'],
  ])('do not hold %j', (url) => {
    expect(allows(ours, { url })).toBe(false);
  });
});

describe('values', () => {
  const fixed = { argument: '/mode', one_of: ['read', 2, true, null] };

  test.each([['read'], [2], [true], [null], [['read', 2]]])('hold %j', (mode) => {
    expect(allows(fixed, { mode })).toBe(true);
  });

  test.each([['write'], ['2'], [1], [false], [{}], [['read', 'write']]])('do not hold %j', (mode) => {
    expect(allows(fixed, { mode })).toBe(false);
  });
});

describe('an argument', () => {
  test('is found by its pointer, and the place of the fault is said', () => {
    const deep = { argument: '/options/a~1b/0', one_of: ['x'] };
    expect(allows(deep, { options: { 'a/b': ['x'] } })).toBe(true);
    expect(violations(deep, { options: { 'a/b': ['y'] } })).toEqual([
      { path: 'arguments.options.a/b.0', expected: 'one of "x"', received: '"y"' },
    ]);
  });

  test('that is left out is refused, unless it may be', () => {
    const needed = { argument: '/path', path_prefixes: ['/data'] };
    for (const args of [{}, [], { other: '/data' }, Object.create({ path: '/data' })]) {
      expect(violations(needed, args)).toEqual([
        {
          path: 'arguments.path',
          expected: 'a path without .. that is /data, or below it',
          received: 'nothing',
        },
      ]);
    }
    expect(allows({ ...needed, required: false }, {})).toBe(true);
    expect(allows({ ...needed, required: false }, { path: '/etc' })).toBe(false);
  });

  test('that is an empty list is left out: nothing in it could be looked at', () => {
    const needed = { argument: '/paths', path_prefixes: ['/data'] };
    expect(violations(needed, { paths: [] })).toMatchObject([{ received: '[]' }]);
    expect(allows({ ...needed, required: false }, { paths: [] })).toBe(true);
  });

  test.each([
    { target: [{ url: 'https://evil.test/' }] },
    { target: 'https://evil.test/' },
    { target: null },
    null,
  ])('that may be left out is not %j, where nothing could be found in its place', (args) => {
    const inside = { argument: '/target/url', hosts: ['api.example.com'], required: false };
    expect(allows(inside, args)).toBe(false);
    expect(allows(inside, {})).toBe(true);
    expect(allows(inside, { target: {} })).toBe(true);
  });

  test.each([
    [{ argument: '/path' }],
    [{ argument: '/path', one_of: ['a'], hosts: ['a.test'] }],
    [{ argument: 'path', one_of: ['a'] }],
    [{ argument: '', one_of: ['a'] }],
    [{ argument: '/~2', one_of: ['a'] }],
    [{ argument: '/path', one_of: [] }],
    [{ argument: '/url', hosts: ['https://a.test/'] }],
    [{ argument: '/url', one_of: ['a'], more: 1 }],
  ])('is not held to %j, which says nothing clear', (constraint) => {
    expect(ArgumentConstraintSchema.safeParse(constraint).success).toBe(false);
  });
});

test('a rule of a policy is for one tool or one category, and a policy has its bounds', () => {
  const rule = { argument: '/a', one_of: ['x'] };
  const accepts = (policy: object) => ToolPolicySchema.safeParse(policy).success;
  expect(accepts({ arguments: [{ ...rule, tool: 'a' }] })).toBe(true);
  expect(accepts({ arguments: [{ ...rule, category: 'a' }] })).toBe(true);
  expect(accepts({ arguments: [rule] })).toBe(false);
  expect(accepts({ arguments: [{ ...rule, tool: 'a', category: 'a' }] })).toBe(false);
  expect(accepts({ tools: [], categories: [] })).toBe(true);
  expect(accepts({ tool: ['a'] })).toBe(false);
  expect(accepts({ tools: Array.from({ length: 100 }, (_, n) => `${n}`.padStart(60, 'x')) })).toBe(false);
});
