import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { exitCodeOf, readTestReport } from '../../scripts/test-report.ts';
import { temporaryFolder } from './temporary-folder.ts';

function report(passed: number, failed: number, testResults: unknown[]): string {
  const path = join(temporaryFolder(), 'report.json');
  writeFileSync(path, JSON.stringify({ numPassedTests: passed, numFailedTests: failed, testResults }));
  return path;
}

describe('the count of a run', () => {
  test('is taken from the report', async () => {
    expect(await readTestReport(report(5, 2, []))).toEqual({ passed: 5, failed: 2 });
  });

  test('counts a file that failed without a failing test', async () => {
    const files = [
      { status: 'failed', assertionResults: [] },
      { status: 'failed', assertionResults: [{ status: 'failed' }] },
      { status: 'passed', assertionResults: [{ status: 'passed' }] },
    ];
    expect(await readTestReport(report(1, 1, files))).toEqual({ passed: 1, failed: 2 });
  });

  test('is unknown without a report', async () => {
    expect(await readTestReport(join(temporaryFolder(), 'absent.json'))).toBeUndefined();
  });
});

test.each([
  ['all passed', { passed: 3, failed: 0 }, 0, 0],
  ['one failed', { passed: 3, failed: 1 }, 1, 1],
  ['no test ran', { passed: 0, failed: 0 }, 0, 1],
  ['vitest failed for another reason', { passed: 3, failed: 0 }, 1, 1],
])('the exit code when %s', (_name, count, vitestExitCode, expected) => {
  expect(exitCodeOf(count, vitestExitCode)).toBe(expected);
});
