import { expect, test } from 'vitest';
import { parseTargets } from '../../../host-agent/setup/debian-archive.ts';

test('the mirror of the main and of the security archive is taken from what apt has', () => {
  const listed = [
    'Packages|Debian|bookworm-security|http://mirror.test/debian-security/',
    'Translations|Debian|bookworm|http://wrong.test/debian/',
    'Packages|Debian|bookworm|http://mirror.test/debian/',
    'Packages|Debian|bookworm-updates|http://other.test/debian/',
  ].join('\n');
  expect(parseTargets(listed)).toEqual({
    mainUri: 'http://mirror.test/debian',
    securityUri: 'http://mirror.test/debian-security',
  });
});

test('a third-party repository for the same release is not taken for Debian', () => {
  expect(parseTargets('Packages|Docker|bookworm|https://third.test/linux/debian/\n')).toEqual({});
});

test('a URI that could break a sources line is passed over', () => {
  expect(parseTargets('Packages|Debian|bookworm|http://mirror.test/ [trusted=yes]\n')).toEqual({});
});
