import { describe, expect, test } from 'vitest';
import { type Outcome, success } from '../../../shared/errors.ts';
import { type RegisteredTool, RegisteredToolSchema } from '../../../shared/registered-tool.ts';
import type { FindTools, FoundByName, StoredTool } from '../../../worker/objects/catalogue/port.ts';
import { KNOWN_FOR_MS, KnownTools, MAX_KNOWN_OF_A_TENANT } from '../../../worker/tools/known-tools.ts';

const AT = '2026-01-01T00:00:00.000Z';

function tool(name: string, description: string): RegisteredTool {
  return RegisteredToolSchema.parse({
    name,
    description,
    category: 'math',
    kind: 'code',
    language: 'python',
    code: 'def run(args): return 1',
    input_schema: { type: 'object' },
    required_scopes: [],
    status: 'ready',
    reason: null,
    source: null,
    created_at: AT,
    updated_at: AT,
    versions: ['1'],
  });
}

/** A catalogue that says how often it was asked, and answers when it is let. */
class Catalogue {
  readonly asked: FindTools[] = [];
  readonly #tools = new Map<string, StoredTool>();
  #revision = 0;
  /** What answers wait for. */
  gate: Promise<unknown> = Promise.resolve();
  fails: Outcome<FoundByName> | undefined;

  put(name: string, description = 'as it was'): void {
    this.#tools.set(name, { tool: tool(name, description), sealedCredentials: null });
    this.#revision += 1;
  }

  remove(name: string): void {
    this.#tools.delete(name);
    this.#revision += 1;
  }

  ask = async (input: FindTools): Promise<Outcome<FoundByName>> => {
    this.asked.push(input);
    const found = (keys: FindTools['keys']) => keys.map(({ name }) => this.#tools.get(name) ?? null);
    const revision = String(this.#revision);
    const changed = input.revision === revision ? null : found(input.known);
    const answer = success({ revision, tools: found(input.keys), changed });
    await this.gate;
    return this.fails ?? answer;
  };
}

function isolate(catalogue: Catalogue, tenant = 'acme') {
  const known = new KnownTools();
  const find = async (nowMs: number, ...names: string[]) => {
    const found = await known.find({ tenant, names, kind: 'name', nowMs }, catalogue.ask);
    return found.ok ? found.value.map((one) => `${one.tool.name} ${one.tool.description}`) : found.code;
  };
  return { known, find };
}

describe('the tools that an isolate knows', () => {
  test('are asked for once, by however many calls at once, and not again while that is recent', async () => {
    const catalogue = new Catalogue();
    catalogue.put('add');
    const { find } = isolate(catalogue);
    const first = await Promise.all(Array.from({ length: 50 }, () => find(1_000, 'add')));
    expect(new Set(first.map(String))).toEqual(new Set(['add as it was']));
    for (let ms = 0; ms < KNOWN_FOR_MS; ms += 100) expect(await find(1_000 + ms, 'add')).toHaveLength(1);
    expect(catalogue.asked).toHaveLength(1);
  });

  test('are asked about together, however many they are, once in that time', async () => {
    const catalogue = new Catalogue();
    const names = Array.from({ length: 40 }, (_, n) => `tool-${n}`);
    for (const name of names) catalogue.put(name);
    const { find } = isolate(catalogue);
    await find(0, ...names);
    for (let second = 1; second <= 20; second += 1) {
      for (const name of names) expect(await find(second * 1_000, name)).toEqual([`${name} as it was`]);
    }
    expect(catalogue.asked.length).toBeLessThanOrEqual(1 + 20_000 / KNOWN_FOR_MS);
  });

  test.each([
    ['replaced', (catalogue: Catalogue) => catalogue.put('add', 'as it is'), ['add as it is']],
    ['removed', (catalogue: Catalogue) => catalogue.remove('add'), []],
  ])('are what they are %s by, after the bound at the latest', async (_name, change, then) => {
    const catalogue = new Catalogue();
    catalogue.put('add');
    catalogue.put('other');
    const { find } = isolate(catalogue);
    await find(0, 'add', 'other');
    change(catalogue);
    expect(await find(KNOWN_FOR_MS - 1, 'add')).toEqual(['add as it was']);
    expect(await find(KNOWN_FOR_MS, 'add')).toEqual(then);
    expect(await find(KNOWN_FOR_MS, 'other')).toEqual(['other as it was']);
  });

  test('are asked for anew at once where the change was made, also by who came while a question was under way', async () => {
    const catalogue = new Catalogue();
    catalogue.put('add');
    const { known, find } = isolate(catalogue);
    const gate = Promise.withResolvers<void>();
    catalogue.gate = gate.promise;
    const before = find(0, 'add');
    catalogue.put('add', 'as it is');
    known.forget('acme');
    const behind = find(0, 'add');
    gate.resolve();
    expect(await before).toEqual(['add as it was']);
    expect(await behind).toEqual(['add as it is']);
    expect(await find(1, 'add')).toEqual(['add as it is']);
  });

  test('that came to be there are seen at once', async () => {
    const catalogue = new Catalogue();
    const { find } = isolate(catalogue);
    expect(await find(0, 'new')).toEqual([]);
    catalogue.put('new');
    expect(await find(1, 'new')).toEqual(['new as it was']);
  });

  test('are those of one revision: what was known before a change is not taken for current behind one', async () => {
    const catalogue = new Catalogue();
    catalogue.put('add');
    const { find } = isolate(catalogue);
    await find(0, 'add');
    catalogue.put('add', 'as it is');
    catalogue.put('other');
    // Asking for another one says that all has changed.
    expect(await find(10, 'other')).toEqual(['other as it was']);
    expect(await find(10, 'add')).toEqual(['add as it is']);
  });

  test('are of their tenant alone', async () => {
    const catalogue = new Catalogue();
    catalogue.put('add');
    const { known, find } = isolate(catalogue);
    await find(0, 'add');
    const theirs = new Catalogue();
    const wish = { tenant: 'globex', names: ['add'], kind: 'name' as const, nowMs: 0 };
    expect(await known.find(wish, theirs.ask)).toEqual(success([]));
    theirs.put('add', 'of the others');
    expect(await known.find(wish, theirs.ask)).toMatchObject({
      value: [{ tool: { description: 'of the others' } }],
    });
    expect(await find(0, 'add')).toEqual(['add as it was']);
  });

  test('are not what they were where the catalogue cannot be asked', async () => {
    const catalogue = new Catalogue();
    catalogue.put('add');
    const { find } = isolate(catalogue);
    await find(0, 'add');
    catalogue.fails = { ok: false, code: 'overloaded', detail: 'it has too much to do' };
    expect(await find(KNOWN_FOR_MS, 'add')).toBe('overloaded');
    catalogue.fails = undefined;
    expect(await find(KNOWN_FOR_MS, 'add')).toEqual(['add as it was']);
  });

  test('are had by who waits for a question whose request has gone', async () => {
    const catalogue = new Catalogue();
    catalogue.put('add');
    const { find } = isolate(catalogue);
    catalogue.gate = new Promise(() => undefined);
    void find(0, 'add');
    catalogue.gate = Promise.resolve();
    expect(await Promise.all([find(0, 'add'), find(0, 'add')])).toEqual([
      ['add as it was'],
      ['add as it was'],
    ]);
  });

  test('are at most so many, and those beyond are found all the same', async () => {
    const catalogue = new Catalogue();
    const names = Array.from({ length: MAX_KNOWN_OF_A_TENANT + 50 }, (_, n) => `tool-${n}`);
    for (const name of names) catalogue.put(name);
    const { find } = isolate(catalogue);
    expect(await find(0, ...names)).toHaveLength(names.length);
    for (const name of names) expect(await find(0, name)).toHaveLength(1);
    expect(Math.max(...catalogue.asked.map(({ known }) => known.length))).toBe(MAX_KNOWN_OF_A_TENANT);
  });
});
