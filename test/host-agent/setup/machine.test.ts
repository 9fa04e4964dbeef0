import { expect, test } from 'vitest';
import { debianCodename, requireSpace } from '../../../host-agent/setup/machine.ts';

const osRelease = (id: string, version: string, codename: string): string =>
  `PRETTY_NAME="${id} ${version}"\nID=${id}\nVERSION_ID="${version}"\nVERSION_CODENAME=${codename}\n`;

test.each([
  ['12', 'bookworm'],
  ['13', 'trixie'],
])('Debian %s is accepted', (version, codename) => {
  expect(debianCodename(osRelease('debian', version, codename))).toBe(codename);
});

test.each([
  ['an older Debian', osRelease('debian', '11', 'bullseye'), 'debian 11'],
  ['another distribution', osRelease('ubuntu', '24.04', 'noble'), 'ubuntu 24.04'],
  ['a machine that does not say', '', 'an unknown system'],
])('%s is refused by name', (_name, text, found) => {
  expect(() => debianCodename(text)).toThrow(`needs Debian 12 or 13; this machine runs ${found}`);
});

test('too little disk space is refused with both numbers', () => {
  expect(() => requireSpace(1024 ** 3, '/cache')).toThrow(
    'not enough disk space in /cache: 1.0 GiB free, 2.0 GiB needed',
  );
  expect(() => requireSpace(2 * 1024 ** 3, '/cache')).not.toThrow();
});
