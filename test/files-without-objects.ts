/** Which tests of the Worker need no binding, object or request: their modules have no state that one file could leave another. */
import { globSync, readFileSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';

const ROOT = join(import.meta.dirname, '..');
/** Types are gone when it runs. */
const IMPORT = /^(?:import|export)(?!\s+type\b)[^'";]*?from\s+'([^']+)'|\bimport\s*\(?\s*'([^']+)'/gm;

function importsOf(path: string): string[] {
  return [...readFileSync(path, 'utf8').matchAll(IMPORT)].flatMap((match) => match[1] ?? match[2] ?? []);
}

/** Whether a module of the runtime with bindings, objects or storage is among what it imports, followed to the end. */
function reachesRuntime(path: string, seen: Set<string>): boolean {
  if (seen.has(path)) return false;
  seen.add(path);
  return importsOf(path).some((specifier) =>
    specifier.startsWith('.')
      ? reachesRuntime(join(dirname(path), specifier), seen)
      : specifier.startsWith('cloudflare:'),
  );
}

export function filesWithoutObjects(): string[] {
  return globSync(join(ROOT, 'test/worker/**/*.test.ts'))
    .filter((path) => !reachesRuntime(path, new Set()))
    .map((path) => relative(ROOT, path));
}
