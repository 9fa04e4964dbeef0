/** Where references lead: every schema of a document with its base, its anchors and its dialect. */
import { type Dialect, isObject, type SchemaObject } from './evaluation.ts';

export class SchemaFault extends Error {
  override name = 'SchemaFault';
  /** Pointer to the place in the schema, from its root. */
  readonly pointer: string;

  constructor(expected: string, pointer: string) {
    super(expected);
    this.pointer = pointer;
  }
}

export interface SchemaPlace {
  base: string;
  dialect: Dialect;
}

export interface Reference {
  schema: unknown;
  base: string;
  /** Name of the anchor that led there, if it is one that a caller may replace. */
  dynamicName: string | undefined;
}

/** More than this is no tool's: it would only cost. */
const MAX_SCHEMAS = 20_000;
const MAX_DEPTH = 64;

const ONE = [
  'not',
  'if',
  'then',
  'else',
  'contains',
  'propertyNames',
  'additionalProperties',
  'unevaluatedProperties',
  'unevaluatedItems',
  'additionalItems',
  'contentSchema',
  'items',
];
const LISTS = ['allOf', 'anyOf', 'oneOf', 'prefixItems', 'items'];
const MAPS = ['properties', 'patternProperties', '$defs', 'definitions', 'dependentSchemas', 'dependencies'];

export class Documents {
  readonly #resources = new Map<string, SchemaObject>();
  readonly #anchors = new Map<string, SchemaObject>();
  readonly #dynamicAnchors = new Map<string, SchemaObject>();
  readonly #places = new WeakMap<object, SchemaPlace>();
  readonly #resolved = new Map<string, Reference>();
  readonly #dialectOf: (uri: string, pointer: string) => Dialect;
  readonly #load: (uri: string) => unknown;
  #schemas = 0;
  /** Whether any schema asks what the others have looked at. */
  asksForSeen = false;
  readonly patterns = new Map<string, string>();
  readonly references: { reference: string; base: string; pointer: string }[] = [];

  constructor(from: {
    dialectOf: (uri: string, pointer: string) => Dialect;
    load: (uri: string) => unknown;
  }) {
    this.#dialectOf = from.dialectOf;
    this.#load = from.load;
  }

  add(schema: unknown, place: SchemaPlace): void {
    this.#walk(schema, { place, pointer: '', depth: 0, isDocument: true });
  }

  placeOf(schema: SchemaObject): SchemaPlace | undefined {
    return this.#places.get(schema);
  }

  dynamicAnchor(base: string, name: string): SchemaObject | undefined {
    return this.#dynamicAnchors.get(`${base}#${name}`);
  }

  resolve(reference: string, base: string): Reference | undefined {
    const name = `${base} ${reference}`;
    const known = this.#resolved.get(name);
    if (known !== undefined) return known;
    const found = this.#find(reference, base);
    if (found !== undefined) this.#resolved.set(name, found);
    return found;
  }

  #find(reference: string, base: string): Reference | undefined {
    const uri = URL.parse(reference, base)?.href;
    if (uri === undefined) return undefined;
    const [document = '', fragment = ''] = uri.split('#');
    const root = this.#resource(document);
    if (root === undefined) return undefined;
    if (fragment === '') return { ...root, dynamicName: undefined };
    if (fragment.startsWith('/')) return this.#pointed(root, fragment);
    const anchored = this.#anchors.get(`${root.base}#${fragment}`);
    if (anchored === undefined) return undefined;
    const isDynamic = this.#dynamicAnchors.get(`${root.base}#${fragment}`) === anchored;
    return { schema: anchored, base: root.base, dynamicName: isDynamic ? fragment : undefined };
  }

  #resource(uri: string): { schema: SchemaObject; base: string } | undefined {
    const known = this.#resources.get(uri);
    if (known !== undefined) return { schema: known, base: this.#places.get(known)?.base ?? uri };
    const loaded = this.#load(uri);
    if (!isObject(loaded)) return undefined;
    const named = typeof loaded.$schema === 'string' ? loaded.$schema : '';
    this.add(loaded, { base: uri, dialect: this.#dialectOf(named, '') });
    const found = this.#resources.get(uri);
    return found === undefined ? undefined : { schema: found, base: this.#places.get(found)?.base ?? uri };
  }

  #pointed(root: { schema: SchemaObject; base: string }, pointer: string): Reference | undefined {
    let current: unknown = root.schema;
    let place: SchemaPlace | undefined = this.#places.get(root.schema);
    for (const token of pointer.slice(1).split('/')) {
      const key = decoded(token);
      if (Array.isArray(current)) current = current[Number(key)];
      else if (isObject(current) && Object.hasOwn(current, key)) current = current[key];
      else return undefined;
      if (isObject(current)) place = this.#places.get(current) ?? place;
    }
    if (current === undefined || place === undefined) return undefined;
    // A schema under a word that nobody knows is one because somebody refers to it.
    if (isObject(current) && !this.#places.has(current)) {
      this.#walk(current, { place, pointer, depth: 0, isDocument: false });
    }
    return { schema: current, base: place.base, dynamicName: undefined };
  }

  #walk(
    schema: unknown,
    at: { place: SchemaPlace; pointer: string; depth: number; isDocument: boolean },
  ): void {
    if (!isObject(schema) || this.#places.has(schema)) return;
    this.#schemas += 1;
    if (this.#schemas > MAX_SCHEMAS) throw new SchemaFault(`at most ${MAX_SCHEMAS} schemas`, at.pointer);
    if (at.depth > MAX_DEPTH) throw new SchemaFault(`at most ${MAX_DEPTH} schemas in each other`, at.pointer);
    const place = this.#identify(schema, at);
    this.#places.set(schema, place);
    this.asksForSeen ||= 'unevaluatedItems' in schema || 'unevaluatedProperties' in schema;
    this.#note(schema, place, at.pointer);
    if (place.dialect.name === 'draft-07' && typeof schema.$ref === 'string') {
      // Only what it refers to counts, but others may refer to what stands beside it.
      this.#walkMaps(schema, place, at, ['definitions', '$defs']);
      return;
    }
    for (const keyword of ONE) this.#into(schema[keyword], place, at, keyword);
    for (const keyword of LISTS) {
      const list = schema[keyword];
      if (!Array.isArray(list)) continue;
      for (const [index, entry] of list.entries()) this.#into(entry, place, at, `${keyword}/${index}`);
    }
    this.#walkMaps(schema, place, at, MAPS);
  }

  #walkMaps(
    schema: SchemaObject,
    place: SchemaPlace,
    at: { pointer: string; depth: number },
    keywords: readonly string[],
  ): void {
    for (const keyword of keywords) {
      const map = schema[keyword];
      if (!isObject(map)) continue;
      for (const [name, entry] of Object.entries(map)) this.#into(entry, place, at, `${keyword}/${name}`);
    }
  }

  #into(schema: unknown, place: SchemaPlace, at: { pointer: string; depth: number }, step: string): void {
    this.#walk(schema, { place, pointer: `${at.pointer}/${step}`, depth: at.depth + 1, isDocument: false });
  }

  /** What the schema is called, and which rules it follows. */
  #identify(
    schema: SchemaObject,
    { place, pointer, isDocument }: { place: SchemaPlace; pointer: string; isDocument: boolean },
  ): SchemaPlace {
    const isOnlyReference = place.dialect.name === 'draft-07' && typeof schema.$ref === 'string';
    const id = typeof schema.$id === 'string' && !isOnlyReference ? schema.$id : undefined;
    const isFragment = id?.startsWith('#') === true;
    const uri = id === undefined || isFragment ? undefined : URL.parse(id, place.base)?.href;
    if (id !== undefined && !isFragment && uri === undefined)
      throw new SchemaFault('a URI', `${pointer}/$id`);
    const base = uri?.split('#')[0] ?? place.base;
    const isResource = uri !== undefined || isDocument;
    const dialect =
      isResource && typeof schema.$schema === 'string'
        ? this.#dialectOf(schema.$schema, `${pointer}/$schema`)
        : place.dialect;
    if (isDocument) this.#resources.set(place.base, schema);
    if (isResource) this.#resources.set(base, schema);
    if (isFragment) this.#anchors.set(`${base}${id}`, schema);
    return { base, dialect };
  }

  #note(schema: SchemaObject, { base, dialect }: SchemaPlace, pointer: string): void {
    if (dialect.name === '2020-12') {
      if (typeof schema.$anchor === 'string') this.#anchors.set(`${base}#${schema.$anchor}`, schema);
      if (typeof schema.$dynamicAnchor === 'string') {
        this.#anchors.set(`${base}#${schema.$dynamicAnchor}`, schema);
        this.#dynamicAnchors.set(`${base}#${schema.$dynamicAnchor}`, schema);
      }
    }
    for (const keyword of ['$ref', ...(dialect.name === '2020-12' ? ['$dynamicRef'] : [])]) {
      const reference = schema[keyword];
      if (typeof reference === 'string')
        this.references.push({ reference, base, pointer: `${pointer}/${keyword}` });
    }
    if (typeof schema.pattern === 'string') this.patterns.set(schema.pattern, `${pointer}/pattern`);
    if (!isObject(schema.patternProperties)) return;
    for (const source of Object.keys(schema.patternProperties)) {
      this.patterns.set(source, `${pointer}/patternProperties`);
    }
  }
}

/** RFC 6901 within a URI. */
function decoded(token: string): string {
  let text = token;
  try {
    text = decodeURIComponent(token);
  } catch {
    // Not an encoded text: taken as it is.
  }
  return text.replaceAll('~1', '/').replaceAll('~0', '~');
}
