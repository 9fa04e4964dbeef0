import { expect, test } from 'vitest';
import * as z from 'zod';
import { exactMessage } from '../../../worker/sources/mcp/exact-message.ts';
import { INTEGERS, withExactIntegers } from '../../../worker/sources/mcp/exact-tools.ts';

const MOST = '9223372036854775807';
const PageSchema = z.object({ result: z.looseObject({ tools: z.array(z.unknown()) }) });

/** As the client, which rounds, gives it on. */
const pageOf = (tools: string) =>
  withExactIntegers(PageSchema.parse(JSON.parse(exactMessage(`{"result":{"tools":${tools}}}`))).result);

test('integers are put back wherever they were, in lists and below names that are no words', () => {
  const tools = `[{"a":[1,${MOST},{"":[[${MOST}]]}]},{"1":${MOST},"b":{"__proto__":${MOST},"length":-${MOST}}}]`;
  expect(JSON.stringify(pageOf(tools).tools)).toBe(tools);
});

test('what is noted beside a list is no longer than the list, however long the names above its integers are', () => {
  const name = 'n'.repeat(10_000);
  const integers = Array.from({ length: 1_000 }, () => MOST).join(',');
  const text = `{"result":{"tools":[{"${name}":[${integers}]}]}}`;
  const read = exactMessage(text);
  expect(read).toContain(INTEGERS);
  expect(read.length).toBeLessThan(3 * text.length);
});

test.each([
  ['the length of a list', [['length', MOST]]],
  ['a list that is not there', [[7, [['a', MOST]]]]],
  ['what every object has', [[0, [['__proto__', [['a', MOST]]]]]]],
  ['no digits', [[0, [['a', 'many']]]]],
  ['no list', { 0: MOST }],
])('a note of the server itself that names %s changes nothing', (_name, note) => {
  const page = { tools: [{ a: 'text' }], _meta: { [INTEGERS]: note } };
  expect(withExactIntegers(page)).toEqual(page);
});
