import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { ERRORS_PAGE, errorsPage } from '../../../scripts/errors-page/page.ts';
import { locations } from '../../../scripts/locations.ts';
import { ERRORS } from '../../../shared/errors.ts';

test('docs/errors.md is what `npm run errors` makes of the list', async () => {
  expect(await readFile(join(locations({}).repositoryDir, ERRORS_PAGE), 'utf8')).toBe(errorsPage());
});

test('the page has each code once, with its status', () => {
  const rows = errorsPage()
    .split('\n')
    .flatMap((line) => /^\| `([a-z_]+)` +\| (\d{3}) /.exec(line)?.slice(1) ?? []);
  const listed = Object.entries(ERRORS).flatMap(([code, { status }]) => [code, String(status)]);
  expect(rows).toEqual(listed);
});
