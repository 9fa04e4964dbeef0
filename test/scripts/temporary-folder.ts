/** A folder that is gone after the test. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { onTestFinished } from 'vitest';

export function temporaryFolder(): string {
  const dir = mkdtempSync(join(tmpdir(), 'sandgate-scripts-'));
  onTestFinished(() => rmSync(dir, { recursive: true, force: true }));
  return dir;
}
