/** What an object does about its tables when it wakes. */
import { evictDurableObject, runInDurableObject } from 'cloudflare:test';
import { env } from 'cloudflare:workers';
import { expect, test } from 'vitest';
import { ensureSchema, type Schema } from '../../../worker/objects/schema.ts';

const FIRST: Schema = {
  name: 'example',
  statements: 'CREATE TABLE IF NOT EXISTS example (n INTEGER PRIMARY KEY)',
  afterwards: 'INSERT INTO example DEFAULT VALUES',
};

function objectNamed(name: string) {
  const stub = env.SESSION.get(env.SESSION.idFromName(name));
  const ensure = (schema: Schema) =>
    runInDurableObject(stub, (_object, { storage }) => {
      ensureSchema(storage, schema);
      return Number(storage.sql.exec('SELECT COUNT(*) AS count FROM example').one().count);
    });
  return { stub, ensure };
}

test('a schema is run once for an object, however often the object is started', async () => {
  const { stub, ensure } = objectNamed('schema:once');
  expect(await ensure(FIRST)).toBe(1);
  expect(await ensure(FIRST)).toBe(1);
  await evictDurableObject(stub);
  expect(await ensure(FIRST)).toBe(1);
});

test('one that has changed is run again, and tables get the columns that they lack', async () => {
  const { stub, ensure } = objectNamed('schema:changed');
  await ensure(FIRST);
  await evictDurableObject(stub);
  const newer: Schema = { ...FIRST, newerColumns: [['example', 'added', 'TEXT']], afterwards: '' };
  expect(await ensure(newer)).toBe(1);
  const columns = await runInDurableObject(stub, (_object, { storage }) =>
    storage.sql
      .exec("SELECT name FROM pragma_table_info('example')")
      .toArray()
      .map(({ name }) => name),
  );
  expect(columns).toEqual(['n', 'added']);
});

test('rows that are there before a column get what it is filled with, and later ones do not', async () => {
  const { stub, ensure } = objectNamed('schema:filled');
  await ensure(FIRST);
  const filled: Schema = { ...FIRST, newerColumns: [['example', 'added', 'TEXT', "'before ' || n"]] };
  await evictDurableObject(stub);
  await ensure(filled);
  await evictDurableObject(stub);
  await ensure({ ...filled, afterwards: '' });
  const added = await runInDurableObject(stub, (_object, { storage }) =>
    storage.sql
      .exec('SELECT added FROM example ORDER BY n')
      .toArray()
      .map((row) => row.added),
  );
  expect(added).toEqual(['before 1', null]);
});

test('an object whose tables a version without this book made gets what it lacks', async () => {
  const { stub, ensure } = objectNamed('schema:former');
  await runInDurableObject(stub, (_object, { storage }) => {
    storage.sql.exec('CREATE TABLE example (n INTEGER PRIMARY KEY); INSERT INTO example DEFAULT VALUES');
    storage.sql.exec('DROP TABLE made_schema');
  });
  await evictDurableObject(stub);
  expect(await ensure(FIRST)).toBe(2);
});
