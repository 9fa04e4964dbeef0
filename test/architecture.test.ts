import { glob, readFile } from 'node:fs/promises';
import { dirname, join, normalize, relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, test } from 'vitest';

const root = normalize(join(dirname(fileURLToPath(import.meta.url)), '..'));

interface Source {
  path: string;
  text: string;
  imports: string[];
}

async function sources(): Promise<Source[]> {
  const found: Source[] = [];
  for await (const path of glob('{shared,worker,host-agent}/**/*.ts', { cwd: root })) {
    if (path.endsWith('.d.ts')) continue;
    const text = await readFile(join(root, path), 'utf8');
    const imports = [...text.matchAll(/^(?:import|export)[^'"]*?from\s+'([^']+)'/gms)].map(
      (match) => match[1] ?? '',
    );
    found.push({ path, text, imports });
  }
  return found;
}

function target(source: Source, specifier: string): string | undefined {
  return specifier.startsWith('.') ? relative(root, join(root, dirname(source.path), specifier)) : undefined;
}

const all = await sources();

function offenders(rule: (source: Source) => string[]): string[] {
  return all.flatMap((source) => rule(source).map((what) => `${source.path}: ${what}`));
}

function localImportsOutside(folder: string, allowed: string[]): string[] {
  return offenders((source) =>
    source.path.startsWith(`${folder}/`)
      ? source.imports.filter((specifier) => {
          const path = target(source, specifier);
          return path !== undefined && !allowed.some((prefix) => path.startsWith(`${prefix}/`));
        })
      : [],
  );
}

describe('the folders', () => {
  test('hold sources, or this test would prove nothing', () => {
    for (const folder of ['shared', 'worker', 'host-agent']) {
      expect(all.some((source) => source.path.startsWith(`${folder}/`))).toBe(true);
    }
  });

  test('import one way: worker to shared, host-agent to shared, shared to nothing', () => {
    expect(localImportsOutside('shared', ['shared'])).toEqual([]);
    expect(localImportsOutside('worker', ['worker', 'shared'])).toEqual([]);
    expect(localImportsOutside('host-agent', ['host-agent', 'shared'])).toEqual([]);
  });

  test('hold no circle of imports', () => {
    const graph = new Map(
      all.map((source) => [
        source.path,
        source.imports.flatMap((specifier) => target(source, specifier) ?? []),
      ]),
    );
    const circles: string[] = [];
    const done = new Set<string>();
    const walk = (path: string, trail: string[]): void => {
      if (trail.includes(path)) {
        circles.push([...trail.slice(trail.indexOf(path)), path].join(' > '));
        return;
      }
      if (done.has(path)) return;
      for (const next of graph.get(path) ?? []) walk(next, [...trail, path]);
      done.add(path);
    };
    for (const path of graph.keys()) walk(path, []);
    expect(circles).toEqual([]);
  });

  test('of shared import zod and jose only', () => {
    expect(
      offenders((source) =>
        source.path.startsWith('shared/')
          ? source.imports.filter((name) => !name.startsWith('.') && !['zod', 'jose'].includes(name))
          : [],
      ),
    ).toEqual([]);
  });

  test('of the worker import nothing of Node', () => {
    expect(
      offenders((source) =>
        source.path.startsWith('host-agent/')
          ? []
          : source.imports.filter((name) => name.startsWith('node:')),
      ),
    ).toEqual([]);
  });
});

describe('each power', () => {
  test('of starting programs is in host-agent/process only', () => {
    expect(
      offenders((source) =>
        source.path.startsWith('host-agent/process/')
          ? []
          : source.imports.filter((name) => name === 'node:child_process'),
      ),
    ).toEqual([]);
  });

  test('of SQL is in a store only', () => {
    expect(
      offenders((source) =>
        source.path.endsWith('/store.ts')
          ? []
          : [...source.text.matchAll(/\.sql\.exec/g)].map(() => 'sql.exec'),
      ),
    ).toEqual([]);
  });

  test('of zod comes whole, because the named import carries every locale into the bundle', () => {
    expect(
      offenders((source) => [...source.text.matchAll(/import \{ z \} from 'zod'/g)].map(() => 'named z')),
    ).toEqual([]);
  });
});
