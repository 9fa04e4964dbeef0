/** The official JSON-Schema-Test-Suite: the required tests of both dialects. */
import { glob, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { beforeAll, describe, expect, test } from 'vitest';
import * as z from 'zod';
import { compileSchema } from '../worker/schema/compile.ts';
import { jsonSchemaTestSuite } from './fixtures/json-schema-test-suite.ts';

let folder: string;
beforeAll(async () => {
  folder = await jsonSchemaTestSuite();
}, 300_000);
const DIALECTS = {
  draft7: 'http://json-schema.org/draft-07/schema#',
  'draft2020-12': 'https://json-schema.org/draft/2020-12/schema',
};
/** Where the suite says that its other documents are. */
const REMOTES = 'http://localhost:1234/';
const WANTED_SHARE = 0.995;

const GroupsSchema = z.array(
  z.object({
    description: z.string(),
    schema: z.unknown(),
    tests: z.array(z.object({ description: z.string(), data: z.unknown(), valid: z.boolean() })),
  }),
);

async function json(path: string): Promise<unknown> {
  return JSON.parse(await readFile(path, 'utf8'));
}

async function remoteDocuments(): Promise<ReadonlyMap<string, unknown>> {
  const documents = new Map<string, unknown>();
  for await (const path of glob('**/*.json', { cwd: join(folder, 'remotes') })) {
    documents.set(`${REMOTES}${path}`, await json(join(folder, 'remotes', path)));
  }
  return documents;
}

describe('the official suite', () => {
  test.each(Object.entries(DIALECTS))('of %s is passed', async (dialectFolder, dialect) => {
    const documents = await remoteDocuments();
    const failures: string[] = [];
    let count = 0;
    const tests = join(folder, 'tests', dialectFolder);
    for await (const path of glob('*.json', { cwd: tests })) {
      for (const group of GroupsSchema.parse(await json(join(tests, path)))) {
        const compiled = compileSchema(group.schema, { documents, dialect });
        for (const { description, data, valid } of group.tests) {
          count += 1;
          const checked = compiled.ok ? compiled.schema.check(data, 'value') : undefined;
          const answer = checked?.ok === true ? checked.violations.length === 0 : undefined;
          if (answer !== valid) failures.push(`${path}: ${group.description}: ${description}`);
        }
      }
    }
    const told = [`JSON-Schema-Test-Suite, ${dialectFolder}: ${count - failures.length} of ${count} passed`];
    console.info([...told, ...failures].join('\n'));
    expect(count).toBeGreaterThan(500);
    expect(1 - failures.length / count, failures.join('\n')).toBeGreaterThanOrEqual(WANTED_SHARE);
  });
});
