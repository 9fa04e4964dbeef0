import { describe, expect, test } from 'vitest';
import type { Execution } from '../../../shared/execution.ts';
import { TerminalStatusSchema } from '../../../shared/lifecycle.ts';
import { clip, shares } from '../../../worker/rendering/clip.ts';
import { executionText, MIN_MAX_CHARACTERS } from '../../../worker/rendering/execution-text.ts';
import { imagesOf } from '../../../worker/rendering/images.ts';
import { executionOf } from '../harness/executions.ts';

const text = (facts: Partial<Execution>, maxCharacters = 16_000) =>
  executionText(executionOf(facts), maxCharacters);

describe('a call that succeeded', () => {
  test.each<[string, Partial<Execution>, string]>([
    ['output', { stdout: 'one\n' }, 'one\n'],
    ['a value', { value: '42' }, '42'],
    ['warnings', { stderr: 'careful\n' }, 'careful\n'],
    ['nothing', {}, '(no output)'],
    ['an answer', { structured: { operation: 'write', size: 3 } }, '{"operation":"write","size":3}'],
    [
      'a whole file',
      { value: 'text\n', structured: { operation: 'read', content: 'text\n', truncated: false } },
      'text\n',
    ],
  ])('and gave %s alone is that', (_what, facts, expected) => {
    expect(text(facts)).toBe(expected);
  });

  test('and gave several things has each under its name', () => {
    expect(text({ stdout: 'printed\n', stderr: 'warned', value: '42' })).toBe(
      '[stdout]\nprinted\n[stderr]\nwarned\n[value]\n42',
    );
  });

  test('and gave a part of a file says which', () => {
    const structured = { operation: 'read', content: 'ab', size: 9, offset: 0, length: 2, truncated: true };
    expect(text({ value: 'ab', structured })).toBe(
      '[value]\nab\n[answer]\n{"operation":"read","size":9,"offset":0,"length":2,"truncated":true}',
    );
  });

  test('and gave rich results has those that read as text, and names the others', () => {
    const results = [
      { mime: 'text/latex', data: '$x^2$' },
      { mime: 'text/html', data: '<b>x</b>' },
      { mime: 'image/png', data: btoa('123456789') },
    ];
    expect(text({ value: 'x', results })).toBe(
      '[value]\nx\n[result 1, text/latex]\n$x^2$\n[result 2, text/html: 8 characters]\n[result 3, image/png: 9 bytes]',
    );
    const many = Array.from({ length: 11 }, () => ({ mime: 'image/png', data: '' }));
    expect(text({ results: many })).toMatch(/\[3 more results\]$/);
  });
});

describe('a call that did not succeed', () => {
  test('says how it ended before anything else', () => {
    const error = { name: 'ValueError', message: 'é\n☃', traceback: 'Traceback\nValueError: é\n☃\n' };
    expect(text({ status: 'failed', exit_code: 1, stdout: 'before\n', error })).toBe(
      'status: failed, ValueError: é\n☃\n[stdout]\nbefore\n[traceback]\nTraceback\nValueError: é\n☃',
    );
    expect(text({ status: 'failed', exit_code: 3 })).toBe('status: failed, exit code 3');
    expect(text({ status: 'failed', exit_code: null, signal: 'SIGSEGV' })).toBe(
      'status: failed, ended by SIGSEGV',
    );
    expect(text({ status: 'oom', state_lost: true })).toMatch(/^status: oom, .*\nthe session lost its state/);
  });

  test.each(TerminalStatusSchema.options)('is told apart from the others: %s', (status) => {
    const lead = text({ status }).split(/[:,]/).slice(0, 2).join(':');
    if (status === 'succeeded') expect(lead).toBe('(no output)');
    else expect(lead).toContain(status);
  });
});

describe('a budget of characters', () => {
  test('is kept, with head, tail and the place of the whole, whatever there is', () => {
    const long = (seed: number) => `${seed} head ${'🦊x'.repeat(20_000)} tail ${seed}`;
    const results = Array.from({ length: 12 }, (_, index) => ({ mime: 'text/plain', data: long(index) }));
    const error = { name: 'E'.repeat(256), message: long(1), traceback: long(2) };
    const facts: Partial<Execution>[] = [
      { stdout: long(0) },
      { stdout: long(0), stderr: 'short' },
      { status: 'failed', stdout: long(0), stderr: long(1), error },
      {
        status: 'failed',
        stdout: long(0),
        stderr: long(1),
        value: long(3),
        results,
        error,
        state_lost: true,
      },
      { status: 'refused', reason: long(4) },
    ];
    for (const given of facts) {
      for (const maxCharacters of [MIN_MAX_CHARACTERS, 501, 777, 1_000, 5_000, 16_000]) {
        const made = executionOf(given);
        const written = executionText(made, maxCharacters);
        expect(written.length).toBeLessThanOrEqual(maxCharacters);
        expect(written.isWellFormed()).toBe(true);
        if (given.status !== 'refused') expect(written).toContain(`executions/${made.execution_id}]`);
      }
    }
  });

  test('gives short parts what they need', () => {
    const written = text({ stdout: 'x'.repeat(50_000), stderr: 'the reason\n' }, 1_000);
    expect(written).toContain('[stderr]\nthe reason\n');
    expect(written).toMatch(/^\[stdout\]\nx+\n\[… \d+ characters left out …\]\nx+\n/);
  });

  test('says of a call whose session is gone that the rest is too', () => {
    const made = executionOf({ stdout: 'x'.repeat(50_000) });
    expect(executionText(made, 1_000, { isKept: false })).toMatch(/is gone with its session.*\]$/);
  });

  test('counts what it leaves out', () => {
    const cut = clip('a'.repeat(1_000), 200);
    const [, leftOut] = /(\d+) characters left out/.exec(cut) ?? [];
    expect(cut.replaceAll(/[^a]/g, '').length - 'characters'.replaceAll(/[^a]/g, '').length).toBe(
      1_000 - Number(leftOut),
    );
  });

  test('is shared so that nothing of it is lost', () => {
    expect(shares([10, 1_000, 20], 100)).toEqual([10, 70, 20]);
    expect(shares([100, 100], 100)).toEqual([50, 50]);
    expect(shares([1, 2], 100)).toEqual([1, 2]);
    expect(shares([], 100)).toEqual([]);
  });
});

test('images are those that a model can be shown, and not too many', () => {
  const png = { mime: 'image/png', data: 'AAAA' };
  expect(
    imagesOf([png, { mime: 'image/svg+xml', data: '<svg/>' }, { mime: 'text/plain', data: 'x' }]),
  ).toEqual([png]);
  expect(imagesOf([{ mime: 'image/png', data: 'A'.repeat(5_000_001) }])).toEqual([]);
  expect(imagesOf(Array.from({ length: 20 }, () => png))).toHaveLength(8);
});
