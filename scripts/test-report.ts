/** Reads vitest's JSON report. */
import { readFile } from 'node:fs/promises';
import * as z from 'zod';

const ReportSchema = z.object({
  numPassedTests: z.int(),
  numFailedTests: z.int(),
  testResults: z.array(
    z.object({ status: z.string(), assertionResults: z.array(z.object({ status: z.string() })) }),
  ),
});

export type TestCount = { passed: number; failed: number };

/** Undefined when vitest left no report: it died, or never started. */
export async function readTestReport(path: string): Promise<TestCount | undefined> {
  const text = await readFile(path, 'utf8').catch(() => undefined);
  if (text === undefined) return undefined;
  const report = ReportSchema.safeParse(JSON.parse(text));
  if (!report.success) return undefined;
  const { numPassedTests, numFailedTests, testResults } = report.data;
  // A file that fails before its first test, or around its tests, counts as one failure of its own.
  const failedFiles = testResults.filter(
    ({ status, assertionResults }) =>
      status === 'failed' && !assertionResults.some((assertion) => assertion.status === 'failed'),
  );
  return { passed: numPassedTests, failed: numFailedTests + failedFiles.length };
}

/** The exit code of the whole run: a run without tests, or one vitest called bad for another reason, is a failure. */
export function exitCodeOf(count: TestCount, vitestExitCode: number): number {
  if (count.failed > 0 || count.passed === 0) return 1;
  return vitestExitCode;
}
