/** The demo, told on a real stack. */
import { expect, test } from 'vitest';
import { tellStory } from '../../scripts/demo/story.ts';
import { readReceipt } from '../../shared/receipt-verify.ts';
import { useStack } from './stack.ts';

const stack = useStack();

test('a repository with a failing test is cloned, mended and committed in one session, each call with a receipt', async () => {
  const lines: string[] = [];
  const told = await tellStory({
    api: stack().api,
    repositoryDir: new URL('../../', import.meta.url).pathname,
    print: (line) => lines.push(line),
  });
  const text = lines.join('\n');
  expect([told.testsBefore, told.testsAfter]).toEqual([1, 0]);
  expect(text).toContain('FAILED (failures=2)');
  expect(text).toContain('+        if merged and start <= merged[-1][1]:');
  expect(text).toMatch(/Ran 9 tests in [\d.]+s\n\s*OK/);
  expect(text).toContain('[(1, 5), (8, 9)]');
  expect(told.log.trim().split('\n')).toHaveLength(2);
  const statuses = told.receipts.receipts.map((envelope) => {
    const read = readReceipt(envelope);
    return read.ok ? `${read.value.receipt.tool} ${read.value.receipt.status}` : read.code;
  });
  expect(statuses).toEqual([
    'file succeeded',
    'shell succeeded',
    'shell failed',
    'file succeeded',
    'file succeeded',
    'shell succeeded',
    'shell succeeded',
    'shell succeeded',
    'python succeeded',
  ]);
});
