import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { OutputProgress, type Progress } from '../../../worker/mcp/progress.ts';

let heard: Progress[];
let cursors: (string | undefined)[];
let progress: OutputProgress;

beforeEach(() => {
  vi.useFakeTimers();
  heard = [];
  cursors = [];
  progress = new OutputProgress((entry, cursor) => {
    heard.push(entry);
    cursors.push(cursor);
  });
});
afterEach(() => {
  vi.useRealTimers();
});

describe('the progress of a program', () => {
  test('is its first output at once, and what follows together', () => {
    progress.took('one\n', 'place 1');
    progress.took('two\n', 'place 2');
    progress.took('three\n', 'place 3');
    expect(heard).toEqual([{ progress: 4, message: 'one\n' }]);
    vi.advanceTimersByTime(100);
    expect(heard.slice(1)).toEqual([{ progress: 14, message: 'two\nthree\n' }]);
    vi.advanceTimersByTime(1_000);
    progress.took('four\n', 'place 4');
    expect(heard.slice(2)).toEqual([{ progress: 19, message: 'four\n' }]);
    expect(cursors).toEqual(['place 1', 'place 3', 'place 4']);
  });

  test('is the newest of much output, whole characters only', () => {
    progress.took('🦊'.repeat(5_000), 'place 5');
    const [first] = heard;
    expect(first?.progress).toBe(10_000);
    expect(first?.message?.length).toBeLessThanOrEqual(2_000);
    expect(first?.message?.isWellFormed()).toBe(true);
  });

  test('goes on behind what was reported before, and is flushed where nothing of it may be missing', () => {
    const further = new OutputProgress((entry) => heard.push(entry), 10);
    further.took('one', 'place 1');
    further.took('two', 'place 2');
    further.flush();
    further.flush();
    expect(heard).toEqual([
      { progress: 13, message: 'one' },
      { progress: 16, message: 'two' },
    ]);
    further.close();
  });

  test('ends with the program', () => {
    progress.took('one', 'place 6');
    progress.took('two', 'place 7');
    progress.close();
    vi.advanceTimersByTime(1_000);
    expect(heard).toEqual([{ progress: 3, message: 'one' }]);
  });
});
