/** Which disk a folder lies on, as control groups name it. */
import { existsSync, readFileSync, statSync } from 'node:fs';

/** `MAJOR:MINOR` of the whole disk: a partition of one cannot be bounded. Undefined for what lies on no block device. */
export function diskOf(path: string, sysDir = '/sys'): string | undefined {
  const { dev } = statSync(path);
  // As the C library's `makedev` puts them together.
  const major = (dev >> 8) & 0xfff;
  const minor = (dev & 0xff) | ((dev >> 12) & 0xfff00);
  const device = `${sysDir}/dev/block/${major}:${minor}`;
  if (!existsSync(device)) return undefined;
  const isPartition = existsSync(`${device}/partition`);
  return isPartition ? readFileSync(`${device}/../dev`, 'utf8').trim() : `${major}:${minor}`;
}
