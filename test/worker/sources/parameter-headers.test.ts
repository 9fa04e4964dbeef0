import { expect, test } from 'vitest';
import { parameterHeaderFault } from '../../../worker/sources/mcp/parameter-headers.ts';

const object = (properties: object, more: object = {}) => ({ type: 'object', properties, ...more });

test.each([
  ['none', object({ a: { type: 'string' } })],
  [
    'one of each type that may be one',
    object({
      a: { type: 'string', 'x-mcp-header': 'A' },
      b: { type: 'integer', 'x-mcp-header': 'B' },
      c: { type: 'boolean', 'x-mcp-header': 'C-c' },
    }),
  ],
  ['one inside an object', object({ a: object({ b: { type: 'string', 'x-mcp-header': 'A' } }) })],
  ['an argument of that name', object({ 'x-mcp-header': { type: 'string' } })],
])('a tool with %s is called', (_kind, schema) => {
  expect(parameterHeaderFault(schema)).toBeUndefined();
});

test.each([
  ['an empty name', object({ a: { type: 'string', 'x-mcp-header': '' } })],
  ['a name that is no text', object({ a: { type: 'string', 'x-mcp-header': 7 } })],
  ['a space in its name', object({ a: { type: 'string', 'x-mcp-header': 'My Region' } })],
  ['a colon in its name', object({ a: { type: 'string', 'x-mcp-header': 'Region:1' } })],
  ['a line break in its name', object({ a: { type: 'string', 'x-mcp-header': 'Region\n' } })],
  ['other letters in its name', object({ a: { type: 'string', 'x-mcp-header': 'Région' } })],
  ['a number', object({ a: { type: 'number', 'x-mcp-header': 'A' } })],
  ['an object', object({ a: { type: 'object', 'x-mcp-header': 'A' } })],
  ['several types', object({ a: { type: ['string', 'null'], 'x-mcp-header': 'A' } })],
  [
    'one header twice',
    object({ a: { type: 'string', 'x-mcp-header': 'A' }, b: { type: 'string', 'x-mcp-header': 'a' } }),
  ],
  ['one in an item', object({ a: { type: 'array', items: { type: 'string', 'x-mcp-header': 'A' } } })],
  ['one in an alternative', object({}, { anyOf: [object({ a: { type: 'string', 'x-mcp-header': 'A' } })] })],
  ['one for all arguments', { ...object({}), 'x-mcp-header': 'A' }],
])('a tool with %s is not', (_kind, schema) => {
  expect(parameterHeaderFault(schema)).toContain('x-mcp-header');
});
