import { expect, test } from 'vitest';
import { failureReason } from '../../../host-agent/setup/failure-reason.ts';

test.each([
  [
    'apt without a network',
    "W: Failed to fetch http://mirror.test/debian/InRelease  Temporary failure resolving 'mirror.test'\nW: Some index files failed to download.",
    "no network: Failed to fetch http://mirror.test/debian/InRelease  Temporary failure resolving 'mirror.test'",
  ],
  [
    'a full disk',
    'dpkg: error processing\n cannot copy: No space left on device',
    'no space left on the disk',
  ],
  [
    'an apt error among other lines',
    'Reading package lists...\nE: Unable to locate package nothing\nmore',
    'Unable to locate package nothing',
  ],
  [
    'a compiler error',
    "x.c: In function 'main':\nx.c:1:2: error: 'y' undeclared\n  1 | y",
    "x.c:1:2: error: 'y' undeclared",
  ],
  ['anything else', 'first\nlast', 'last'],
  ['silence', '', 'it printed nothing'],
])('%s', (_name, tail, reason) => {
  expect(failureReason(tail)).toBe(reason);
});
