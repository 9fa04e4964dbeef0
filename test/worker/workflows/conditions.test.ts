import { expect, test } from 'vitest';
import { type Condition, ConditionSchema } from '../../../shared/workflow.ts';
import { holds } from '../../../worker/workflows/conditions.ts';

const INPUT = {
  three: 3,
  none: null,
  no: false,
  empty: '',
  text: '3',
  list: [1, { a: 1, b: [2] }],
  object: { a: 1, b: { c: 2 } },
};
const RESULTS = new Map<string, unknown>([['build', { status: 'failed', exit_code: 2 }]]);

/** What it says of the input, as a caller would write it. */
const of = (pointer: string, comparison: object) => ({ value: { $input: pointer }, ...comparison });
const TRUE = of('/three', { equals: 3 });
const FALSE = of('/three', { equals: 4 });

function isTrue(condition: unknown): boolean {
  const parsed: Condition = ConditionSchema.parse(condition);
  return holds(parsed, { input: INPUT, results: RESULTS });
}

test.each<[string, unknown, boolean]>([
  ['equals, the same number', of('/three', { equals: 3 }), true],
  ['equals, another number', of('/three', { equals: 4 }), false],
  ['equals, a text of the number', of('/three', { equals: '3' }), false],
  ['equals, an object in another order', of('/object', { equals: { b: { c: 2 }, a: 1 } }), true],
  ['equals, an object with less', of('/object', { equals: { a: 1 } }), false],
  ['equals, an object with other names', of('/object', { equals: { a: 1, c: { c: 2 } } }), false],
  ['equals, the same list', of('/list', { equals: [1, { b: [2], a: 1 }] }), true],
  ['equals, a list in another order', of('/list', { equals: [{ a: 1, b: [2] }, 1] }), false],
  ['equals, an object with the places of a list', of('/list', { equals: { 0: 1, 1: 2 } }), false],
  ['equals, null where there is nothing', of('/nothing', { equals: null }), true],
  ['equals, false where there is nothing', of('/nothing', { equals: false }), false],
  ['not_equals, another number', of('/three', { not_equals: 4 }), true],
  ['not_equals, the same number', of('/three', { not_equals: 3 }), false],
  ['not_equals, the same object', of('/object', { not_equals: { a: 1, b: { c: 2 } } }), false],
  ['not_equals, where there is nothing', of('/nothing', { not_equals: 3 }), true],
  ['exists, what is there', of('/three', { exists: true }), true],
  ['exists, false', of('/no', { exists: true }), true],
  ['exists, the empty text', of('/empty', { exists: true }), true],
  ['exists, null', of('/none', { exists: true }), false],
  ['exists, nothing', of('/nothing/below', { exists: true }), false],
  ['exists, a place in a list', of('/list/1/b/0', { exists: true }), true],
  ['exists, beyond a list', of('/list/2', { exists: true }), false],
  ['exists, what every object inherits', of('/object/constructor', { exists: true }), false],
  ['not exists, nothing', of('/nothing', { exists: false }), true],
  ['not exists, what is there', of('/three', { exists: false }), false],
  ['greater_than, a smaller one', of('/three', { greater_than: 2 }), true],
  ['greater_than, itself', of('/three', { greater_than: 3 }), false],
  ['greater_than, of a text', of('/text', { greater_than: 2 }), false],
  ['greater_than, of nothing', of('/nothing', { greater_than: -1 }), false],
  ['less_than, a larger one', of('/three', { less_than: 3.5 }), true],
  ['less_than, itself', of('/three', { less_than: 3 }), false],
  ['less_than, of null', of('/none', { less_than: 1 }), false],
  ['two comparisons, both of which hold', of('/three', { greater_than: 2, less_than: 4 }), true],
  ['two comparisons, one of which holds', of('/three', { greater_than: 2, less_than: 3 }), false],
  ['what a task gave', { value: { $from: 'build', path: '/exit_code' }, equals: 2 }, true],
  ['what a task gave that was skipped', { value: { $from: 'other' }, exists: true }, false],
  ['all, where all hold', { all: [TRUE, TRUE] }, true],
  ['all, where one does not', { all: [TRUE, FALSE] }, false],
  ['any, where one holds', { any: [FALSE, TRUE] }, true],
  ['any, where none does', { any: [FALSE, FALSE] }, false],
  ['not, of what holds', { not: TRUE }, false],
  ['not, of what does not', { not: FALSE }, true],
  ['all and any and not, where each holds', { all: [TRUE], any: [FALSE, TRUE], not: FALSE }, true],
  ['all and any and not, where one does not', { all: [TRUE], any: [FALSE, TRUE], not: TRUE }, false],
  ['one within another', { not: { any: [FALSE, { all: [TRUE, { not: TRUE }] }] } }, true],
])('%s', (_, condition, expected) => {
  expect(isTrue(condition)).toBe(expected);
});
