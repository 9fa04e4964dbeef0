import { describe, expect, test } from 'vitest';
import { codeIn } from '../../../worker/repair/answer.ts';
import { errorLine, isRepairable, lastLines, repetition } from '../../../worker/repair/judge.ts';
import { answerText } from '../../../worker/repair/prompt.ts';

describe('the code in an answer', () => {
  test.each([
    ['a fenced block', 'Here:\n```python\nx = 1\n```\nDone.', 'x = 1'],
    ['the longest of several', '```\na\n```\nbetter:\n```py\na = 1\nb = 2\n```', 'a = 1\nb = 2'],
    ['a block with ticks in it', '````\nprint("```")\n````', 'print("```")'],
    ['a block of tildes', '~~~\nx\n~~~', 'x'],
    ['Windows line ends', '```\r\nx = 1\r\n```', 'x = 1'],
  ])('is %s', (_, answer, code) => {
    expect(codeIn(answer)).toBe(code);
  });

  test.each([
    ['prose', 'I cannot mend this.'],
    ['an empty block', '```\n\n```'],
    ['a block that never ends', '```python\nx = 1'],
    ['code within a line', 'use `x = 1`'],
  ])('is not in %s', (_, answer) => {
    expect(codeIn(answer)).toBeUndefined();
  });
});

describe('an attempt', () => {
  test('is mended only where the program itself failed', () => {
    const others = ['timeout', 'interrupted', 'oom', 'crashed', 'unknown', 'refused', 'cancelled'] as const;
    expect(isRepairable({ status: 'failed' })).toBe(true);
    for (const status of others) expect(isRepairable({ status }), status).toBe(false);
  });

  test('is known by the line of its error, and told by the last lines', () => {
    const traceback = Array.from({ length: 100 }, (_, line) => `line ${line}`).join('\n');
    const error = { name: 'ValueError', message: 'bad\nmore', traceback };
    expect(errorLine({ error, stderr: '' })).toBe('ValueError: bad');
    expect(lastLines({ error, stderr: '' }).split('\n')).toHaveLength(40);
    expect(errorLine({ error: null, stderr: 'a\nb\n' })).toBe('b');
  });

  test('repeats another where its code or its error is the same', () => {
    const former = [{ code: 'x = 1\n\ny = 2', error: 'TypeError: <f at 0x7f01> line 3' }];
    expect(repetition({ code: 'x = 1  \ny = 2\n' }, former)).toBe('repeated_code');
    expect(repetition({ code: 'x = 2\ny = 2\n' }, former)).toBeUndefined();
    expect(repetition({ error: 'TypeError: <f at 0xabc> line 4' }, former)).toBe('repeated_error');
    expect(repetition({ error: 'TypeError: other' }, former)).toBeUndefined();
  });
});

test('an answer that is no chat completion is told from an empty one', () => {
  expect(answerText({ choices: [{ message: { content: 'x' } }] })).toBe('x');
  expect(answerText({ choices: [{ message: { content: null } }] })).toBe('');
  for (const other of [null, {}, { choices: [] }, { choices: [{ text: 'x' }] }, 'x']) {
    expect(answerText(other)).toBeUndefined();
  }
});
