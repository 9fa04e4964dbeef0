/** Checks a value against a schema: each keyword in turn, within a budget of steps and of depth. */
import type { Violation } from '../../shared/errors.ts';
import { APPLICATORS, GROUPS, UNEVALUATED } from './applicators.ts';
import { ASSERTIONS, dependentRequired, has } from './assertions.ts';
import { Budget, SchemaLimit } from './budget.ts';
import type { Documents, Reference } from './documents.ts';
import {
  addSeen,
  type Dialect,
  type Evaluation,
  isObject,
  noneSeen,
  type Place,
  type SchemaObject,
  type Scope,
} from './evaluation.ts';
import type { Pattern } from './pattern/pattern.ts';
import { fault } from './violations.ts';

/** Schemas within each other on the way to one value: a reference to itself has no other end. */
const MAX_DEPTH = 400;
/** What it costs to enter one, in steps of a pattern. */
const STEPS_OF_A_SCHEMA = 8;

export class Evaluator implements Evaluation {
  readonly #documents: Documents;
  readonly #patternOf: (source: string) => Pattern;
  readonly #budget: Budget;
  #depth = 0;

  constructor(documents: Documents, patternOf: (source: string) => Pattern, steps: number) {
    this.#documents = documents;
    this.#patternOf = patternOf;
    this.#budget = new Budget(steps);
  }

  run(schema: unknown, value: unknown, start: { base: string; dialect: Dialect; path: string }): Violation[] {
    const violations: Violation[] = [];
    const scope = { base: start.base, outer: undefined };
    const seen = this.#documents.asksForSeen ? noneSeen() : undefined;
    this.check(schema, value, { path: start.path, dialect: start.dialect, scope, seen, violations });
    return violations;
  }

  spend(steps: number): void {
    this.#budget.spend(steps);
  }

  pattern(source: string): Pattern {
    return this.#patternOf(source);
  }

  check(schema: unknown, value: unknown, place: Place): boolean {
    this.spend(STEPS_OF_A_SCHEMA);
    if (schema === false) return fault(place, 'nothing here', value);
    if (!isObject(schema)) return true;
    this.#depth += 1;
    if (this.#depth > MAX_DEPTH) throw new SchemaLimit('the schema goes on without an end');
    const known = this.#documents.placeOf(schema);
    const own: Place = {
      ...place,
      dialect: known?.dialect ?? place.dialect,
      scope: known === undefined ? place.scope : entered(place.scope, known.base),
      seen: place.seen && noneSeen(),
    };
    const fits = this.#keywords(schema, value, own);
    if (fits) addSeen(place.seen, own.seen, this);
    this.#depth -= 1;
    return fits;
  }

  #keywords(schema: SchemaObject, value: unknown, place: Place): boolean {
    const { dialect } = place;
    if (dialect.name === 'draft-07' && typeof schema.$ref === 'string') {
      return this.#follow(schema.$ref, value, place);
    }
    let fits = true;
    const stops = () => !fits && place.violations === undefined;
    if (typeof schema.$ref === 'string') fits = this.#follow(schema.$ref, value, place);
    if (typeof schema.$dynamicRef === 'string' && dialect.name === '2020-12') {
      fits = this.#follow(schema.$dynamicRef, value, place, 'dynamic') && fits;
    }
    for (const keyword of Object.keys(schema)) {
      if (stops()) return false;
      const check = this.#keyword(keyword, dialect);
      this.spend(1);
      if (check === undefined) continue;
      fits = check(this, { keyword: schema[keyword], schema }, value, place) && fits;
    }
    for (const { keywords, check } of GROUPS) {
      if (stops()) return false;
      if (!keywords.some((keyword) => has(schema, keyword))) continue;
      fits = check(this, { keyword: undefined, schema }, value, place) && fits;
    }
    if (dialect.name === 'draft-07') return fits;
    for (const [keyword, check] of UNEVALUATED) {
      if (stops()) return false;
      if (!has(schema, keyword)) continue;
      fits = check(this, { keyword: schema[keyword], schema }, value, place) && fits;
    }
    return fits;
  }

  #keyword(keyword: string, { name, asserts }: Dialect) {
    const applicator = APPLICATORS[name].get(keyword);
    if (applicator !== undefined) return applicator;
    if (!asserts) return undefined;
    if (keyword === 'dependentRequired') return name === '2020-12' ? dependentRequired : undefined;
    return ASSERTIONS.get(keyword);
  }

  #follow(reference: string, value: unknown, place: Place, kind: 'static' | 'dynamic' = 'static'): boolean {
    // They are put together, and looked for, each time.
    this.spend((reference.length + place.scope.base.length) >> 4);
    const found = this.#documents.resolve(reference, place.scope.base);
    if (found === undefined) throw new SchemaLimit(`the reference ${reference.slice(0, 128)} leads nowhere`);
    const target = kind === 'dynamic' ? this.#replaced(found, place.scope) : found;
    return this.check(target.schema, value, { ...place, scope: entered(place.scope, target.base) });
  }

  /** The outermost document that was entered on the way and has the anchor too. */
  #replaced(found: Reference, scope: Scope): { schema: unknown; base: string } {
    if (found.dynamicName === undefined) return found;
    let outermost: { schema: unknown; base: string } = found;
    for (let one: Scope | undefined = scope; one !== undefined; one = one.outer) {
      this.spend(4 + (one.base.length >> 4));
      const schema = this.#documents.dynamicAnchor(one.base, found.dynamicName);
      if (schema !== undefined) outermost = { schema, base: one.base };
    }
    return outermost;
  }
}

function entered(scope: Scope, base: string): Scope {
  return scope.base === base ? scope : { base, outer: scope };
}
