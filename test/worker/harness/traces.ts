/** What a request left behind: which objects there are, and every row of one. */
import { listDurableObjectIds, runInDurableObject } from 'cloudflare:test';
import { env } from 'cloudflare:workers';

/** Ids of the objects of every class that have woken. */
export async function wokenObjects(): Promise<string[]> {
  const namespaces = Object.values(env).filter(
    // A binding of another kind may seem to have any property.
    (binding): binding is DurableObjectNamespace =>
      Object(binding).constructor?.name === 'DurableObjectNamespace',
  );
  const ids = await Promise.all(namespaces.map((namespace) => listDurableObjectIds(namespace)));
  return ids.flat().map(String).toSorted();
}

/** All rows of an object by table; not when its tenant heard of it last, which no request changes. */
export function rowsOf(object: DurableObjectStub): Promise<Record<string, unknown[]>> {
  return runInDurableObject(object, (_object, { storage }) => {
    const tables = storage.sql
      .exec<{ name: string }>(
        "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE '\\_cf%' ESCAPE '\\'",
      )
      .toArray()
      .map(({ name }) => name)
      .filter((name) => name !== 'account');
    return Object.fromEntries(
      tables.map((table) => [table, storage.sql.exec(`SELECT * FROM "${table}"`).toArray()]),
    );
  });
}
