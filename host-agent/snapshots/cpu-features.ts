/** What a checkpoint needs of the CPU: programs have chosen their instructions by what they found at their start. */
import { createHash } from 'node:crypto';
import { readFile } from 'node:fs/promises';

export async function cpuFeaturesSha256(cpuinfoPath = '/proc/cpuinfo'): Promise<string> {
  const text = await readFile(cpuinfoPath, 'utf8');
  return sha256OfFeatures(/^(?:flags|Features)\s*:\s*(.*)$/m.exec(text)?.[1] ?? '');
}

export function sha256OfFeatures(names: string): string {
  const sorted = [...new Set(names.split(/\s+/).filter(Boolean))].sort();
  return createHash('sha256')
    .update(sorted.map((name) => `${name}\n`).join(''))
    .digest('hex');
}
