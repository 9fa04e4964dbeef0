import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { OutputProgress, type Progress } from '../../../worker/mcp/progress.ts';

let heard: Progress[];
let progress: OutputProgress;

beforeEach(() => {
  vi.useFakeTimers();
  heard = [];
  progress = new OutputProgress((entry) => heard.push(entry));
});
afterEach(() => {
  vi.useRealTimers();
});

describe('the progress of a program', () => {
  test('is its first output at once, and what follows together', () => {
    progress.took('one\n');
    progress.took('two\n');
    progress.took('three\n');
    expect(heard).toEqual([{ progress: 4, message: 'one\n' }]);
    vi.advanceTimersByTime(100);
    expect(heard.slice(1)).toEqual([{ progress: 14, message: 'two\nthree\n' }]);
    vi.advanceTimersByTime(1_000);
    progress.took('four\n');
    expect(heard.slice(2)).toEqual([{ progress: 19, message: 'four\n' }]);
  });

  test('is the newest of much output, whole characters only', () => {
    progress.took('🦊'.repeat(5_000));
    const [first] = heard;
    expect(first?.progress).toBe(10_000);
    expect(first?.message?.length).toBeLessThanOrEqual(2_000);
    expect(first?.message?.isWellFormed()).toBe(true);
  });

  test('ends with the program', () => {
    progress.took('one');
    progress.took('two');
    progress.close();
    vi.advanceTimersByTime(1_000);
    expect(heard).toEqual([{ progress: 3, message: 'one' }]);
  });
});
