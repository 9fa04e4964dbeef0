/** One plain line out of what a Debian tool printed before it failed. */

const NO_NETWORK =
  /Could not resolve|Temporary failure resolving|Could not connect|Network is unreachable|Connection timed out|Connection failed/;
const NO_SPACE = /No space left on device|enough free space/;

export function failureReason(tail: string): string {
  const lines = tail.split('\n').map((line) => line.trim());
  const network = lines.find((line) => NO_NETWORK.test(line));
  if (network !== undefined) return `no network: ${withoutMark(network)}`;
  if (lines.some((line) => NO_SPACE.test(line))) return 'no space left on the disk';
  const error = lines.find((line) => line.startsWith('E: ')) ?? lines.find((line) => line.includes('error:'));
  return withoutMark(error ?? lines.at(-1) ?? '') || 'it printed nothing';
}

/** apt and mmdebstrap mark their lines `E:`, `W:` and `Err:1`. */
function withoutMark(line: string): string {
  return line.replace(/^(?:[EWI]: |Err:\d+ )/, '');
}
