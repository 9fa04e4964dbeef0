/** What an object does about its tables when it wakes. */
import { evictDurableObject, runInDurableObject } from 'cloudflare:test';
import { env } from 'cloudflare:workers';
import { describe, expect, test } from 'vitest';
import { SessionSchema } from '../../../shared/session.ts';
import { ensureSchema, LateTables, type Schema } from '../../../worker/objects/schema.ts';
import { echo } from '../../fixtures/host-double/host-double.ts';
import { tokenOf } from '../fixture-issuer.ts';
import { api } from '../harness/api.ts';
import { connectFakeHost, retireFakeHost } from '../harness/fake-host.ts';

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

describe('tables that most objects never need', () => {
  const LATE = {
    name: 'late',
    table: 'late',
    statements: 'CREATE TABLE IF NOT EXISTS late (n INTEGER PRIMARY KEY)',
  };

  function objectWithLateTables(name: string) {
    const stub = env.SESSION.get(env.SESSION.idFromName(name));
    const within = <T>(
      work: (tables: LateTables, storage: DurableObjectStorage) => T,
      schema: Schema = LATE,
    ) =>
      runInDurableObject(stub, (_object, { storage }) =>
        work(new LateTables(storage, { ...schema, table: LATE.table }), storage),
      );
    return { stub, within };
  }

  test('are not there before something is written to them, and stay from then on', async () => {
    const { stub, within } = objectWithLateTables('schema:late');
    expect(await within(({ areMade }) => areMade)).toBe(false);
    await within(({ sql }) => void sql.exec('INSERT INTO late DEFAULT VALUES'));
    await evictDurableObject(stub);
    expect(await within(({ areMade }) => areMade)).toBe(true);
    expect(await within(({ sql }) => sql.exec('SELECT n FROM late').toArray())).toEqual([{ n: 1 }]);
  });

  test('get the columns that they lack when a newer version looks at them', async () => {
    const { stub, within } = objectWithLateTables('schema:late-column');
    await within(({ sql }) => void sql.exec('INSERT INTO late DEFAULT VALUES'));
    await evictDurableObject(stub);
    const newer: Schema = { ...LATE, newerColumns: [['late', 'added', 'TEXT']] };
    const rows = await within(
      ({ areMade, sql }) => areMade && sql.exec('SELECT * FROM late').toArray(),
      newer,
    );
    expect(rows).toEqual([{ n: 1, added: null }]);
  });

  test('are known to be there where a version without this book made them', async () => {
    const { stub, within } = objectWithLateTables('schema:late-former');
    await within((_tables, { sql }) => {
      sql.exec('CREATE TABLE late (n INTEGER PRIMARY KEY); INSERT INTO late VALUES (7)');
      sql.exec('DROP TABLE made_schema');
    });
    await evictDurableObject(stub);
    // It wakes, and nothing is asked of them.
    await within((_tables, storage) => ensureSchema(storage, FIRST));
    await evictDurableObject(stub);
    expect(await within(({ areMade, sql }) => areMade && sql.exec('SELECT n FROM late').toArray())).toEqual([
      { n: 7 },
    ]);
  });

  test('of a session are not made by its calls', async () => {
    const host = await connectFakeHost();
    host.script = echo;
    const token = await tokenOf();
    const { session_id: sessionId } = SessionSchema.parse(
      (await api('POST', '/v1/sessions', { token, body: {} })).json,
    );
    const body = { tool_name: 'shell', arguments: { command: 'true' } };
    const called = await api('POST', `/v1/sessions/${sessionId}/execute`, { token, body });
    expect(called.status, called.text).toBe(200);
    const stub = env.SESSION.get(env.SESSION.idFromName(sessionId));
    const tables = await runInDurableObject(stub, (_object, { storage }) =>
      storage.sql
        .exec("SELECT name FROM sqlite_master WHERE type = 'table'")
        .toArray()
        .map(({ name }) => name),
    );
    await retireFakeHost(host);
    expect(tables).toContain('execution');
    for (const late of [
      'program',
      'inner_call',
      'edge_call',
      'edge_receipt',
      'spill',
      'restore_point',
      'lineage',
    ]) {
      expect(tables).not.toContain(late);
    }
  });
});
