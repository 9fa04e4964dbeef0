import { describe, expect, test } from 'vitest';
import { programPath } from '../../../worker/programs/paths.ts';

describe('the place of a tool in a program', () => {
  test.each([
    ['weather', ['weather']],
    ['weather.get', ['weather', 'get']],
    ['get-weather', ['get__weather']],
    ['get_weather', ['get_weather']],
    ['github.create-issue', ['github', 'create__issue']],
    ['import', ['import_']],
    ['mail.class', ['mail', 'class_']],
    ['call', ['call_']],
    ['x.aio', ['x', 'aio_']],
    ['then', ['then_']],
  ])('of %s is %j', async (name, path) => {
    expect(await programPath(name)).toEqual(path);
  });

  test.each([
    'géo srv/list',
    '1st',
    '_x',
    'a__b',
    'a-_b',
    'import_',
    'a..b',
    '.',
    'a.b.c.d.e.f.g',
    'x'.repeat(200),
  ])('of %s has a part of its hash', async (name) => {
    const path = await programPath(name);
    expect(path).toHaveLength(1);
    expect(path[0]).toMatch(/^[A-Za-z][A-Za-z0-9_]*___[0-9a-f]{10}$/);
  });

  test('is another one for each name', async () => {
    const parts = ['a', 'b', '-', '_', '.', 'call', 'class', '__', '1'];
    const names = parts.flatMap((one) =>
      parts.flatMap((two) => parts.map((three) => `a${one}${two}${three}`)),
    );
    const paths = await Promise.all(names.map(async (name) => (await programPath(name)).join('.')));
    expect(new Set(paths).size).toBe(new Set(names).size);
  });
});
