/**
 * Copies of registered tools in this isolate, so that the catalogue of a tenant is not on the road of its calls. It is asked
 * whether they still hold once in a while, for all of them together: a change is seen everywhere when that is over. Only what
 * is there is kept: a tool that was not there is asked for each time.
 */
import { type Outcome, success } from '../../shared/errors.ts';
import { answerWithin } from '../middleware/answer-within.ts';
import type { FindTools, FoundByName, NameKind, StoredTool, ToolKey } from '../objects/catalogue/port.ts';

export const KNOWN_FOR_MS = 2_000;
/** With a question of another request. */
const PATIENCE_MS = 500;
const MAX_TENANTS = 512;
export const MAX_KNOWN_OF_A_TENANT = 256;
/** Of definitions. */
const MAX_CHARACTERS_OF_A_TENANT = 4 * 1024 * 1024;
const MAX_CHARACTERS = 32 * 1024 * 1024;

export type AskCatalogue = (input: FindTools) => Promise<Outcome<FoundByName>>;

interface Copy {
  key: ToolKey;
  stored: StoredTool;
  characters: number;
}

type Answer = Outcome<Map<string, Copy>>;

interface Question {
  askedAtMs: number;
  /** All that it is about. */
  names: ReadonlySet<string>;
  answer: Promise<Answer>;
}

interface Answered {
  names: ReadonlySet<string>;
  answer: Answer;
}

/** Of one tenant. */
class Copies {
  readonly questions = new Map<string, Question>();
  revision: string | null = null;
  /** When the question was asked that said last that they hold. */
  heldAtMs = 0;
  /** Oldest first. */
  tools = new Map<string, Copy>();

  get characters(): number {
    return charactersOf(this.tools.values());
  }

  /** What the answer says holds at its revision; what was kept of another one need not. */
  keep(answer: Map<string, Copy>, at: { revision: string; askedAtMs: number }): void {
    if (at.askedAtMs < this.heldAtMs) return;
    if (at.revision !== this.revision) this.tools = new Map();
    this.revision = at.revision;
    this.heldAtMs = at.askedAtMs;
    for (const [name, copy] of answer) this.tools.set(name, copy);
    for (let { characters } = this; ; ) {
      const [oldest] = this.tools;
      const isTooMuch = this.tools.size > MAX_KNOWN_OF_A_TENANT || characters > MAX_CHARACTERS_OF_A_TENANT;
      if (oldest === undefined || !isTooMuch) return;
      characters -= oldest[1].characters;
      this.tools.delete(oldest[0]);
    }
  }
}

export class KnownTools {
  readonly #tenants = new Map<string, Copies>();

  /** Those of the names that there are. */
  async find(
    { tenant, names, kind, nowMs }: { tenant: string; names: string[]; kind: NameKind; nowMs: number },
    ask: AskCatalogue,
  ): Promise<Outcome<StoredTool[]>> {
    const copies = this.#copiesOf(tenant);
    const keys = names.map((name) => ({ name, kind }));
    const missing = keys.filter((key) => !copies.tools.has(textOf(key)));
    if (missing.length === 0 && isRecent(copies.heldAtMs, nowMs)) return success(foundIn(copies.tools, keys));
    const first = await answered(copies, { missing, nowMs }, ask);
    if (!first.answer.ok) return first.answer;
    this.#makeRoom(tenant);
    // What came to be known behind a question that was under way already is not in its answer.
    const left = keys.filter((key) => !first.names.has(textOf(key)));
    if (left.length === 0) return success(foundIn(first.answer.value, keys));
    const second = await asked(copies, { missing: left, nowMs }, ask).answer;
    return second.ok ? success(foundIn(new Map([...first.answer.value, ...second.value]), keys)) : second;
  }

  /** The tools of the tenant were changed from here: the next call asks. */
  forget(tenant: string): void {
    this.#tenants.delete(tenant);
  }

  #copiesOf(tenant: string): Copies {
    const known = this.#tenants.get(tenant);
    if (known !== undefined) return known;
    const copies = new Copies();
    this.#tenants.set(tenant, copies);
    return copies;
  }

  /** Tenants that asked longest ago go first. */
  #makeRoom(tenant: string): void {
    const copies = this.#tenants.get(tenant);
    if (copies === undefined) return;
    this.#tenants.delete(tenant);
    this.#tenants.set(tenant, copies);
    let characters = charactersOf(this.#tenants.values());
    for (const [name, one] of this.#tenants) {
      if (this.#tenants.size <= MAX_TENANTS && characters <= MAX_CHARACTERS) return;
      characters -= one.characters;
      this.#tenants.delete(name);
    }
  }
}

/** Of this isolate. */
export const knownTools = new KnownTools();

/** One question for all who come while it is under way. */
async function answered(
  copies: Copies,
  wish: { missing: ToolKey[]; nowMs: number },
  ask: AskCatalogue,
): Promise<Answered> {
  const text = JSON.stringify(wish.missing);
  for (let underWay = copies.questions.get(text); underWay !== undefined; ) {
    if (!isRecent(underWay.askedAtMs, wish.nowMs)) break;
    const answer = await answerWithin(underWay.answer, PATIENCE_MS);
    if (answer !== undefined) return { names: underWay.names, answer };
    if (copies.questions.get(text) === underWay) break;
    underWay = copies.questions.get(text);
  }
  // Those of requests that have gone would be kept for ever.
  for (const [old, { askedAtMs }] of copies.questions) {
    if (!isRecent(askedAtMs, wish.nowMs)) copies.questions.delete(old);
  }
  const question = asked(copies, wish, ask);
  copies.questions.set(text, question);
  const answer = await question.answer.finally(() => {
    if (copies.questions.get(text) === question) copies.questions.delete(text);
  });
  return { names: question.names, answer };
}

function asked(
  copies: Copies,
  { missing, nowMs }: { missing: ToolKey[]; nowMs: number },
  ask: AskCatalogue,
): Question {
  const { revision } = copies;
  const before = [...copies.tools.values()];
  const known = before.map(({ key }) => key);
  const answer = ask({ keys: missing, known, revision }).then((found): Answer => {
    if (!found.ok) return found;
    const { tools, changed } = found.value;
    const now = changed === null ? before : copiesFrom(known, changed);
    const all = new Map([...now, ...copiesFrom(missing, tools)].map((copy) => [textOf(copy.key), copy]));
    copies.keep(all, { revision: found.value.revision, askedAtMs: nowMs });
    return success(all);
  });
  return { askedAtMs: nowMs, names: new Set([...known, ...missing].map(textOf)), answer };
}

function copiesFrom(keys: readonly ToolKey[], tools: readonly (StoredTool | null)[]): Copy[] {
  return keys.flatMap((key, at) => {
    const stored = tools[at] ?? null;
    return stored === null ? [] : [{ key, stored, characters: JSON.stringify(stored.tool).length }];
  });
}

function charactersOf(all: Iterable<{ characters: number }>): number {
  let sum = 0;
  for (const { characters } of all) sum += characters;
  return sum;
}

function foundIn(copies: ReadonlyMap<string, Copy>, keys: readonly ToolKey[]): StoredTool[] {
  return keys.flatMap((key) => copies.get(textOf(key))?.stored ?? []);
}

function textOf({ name, kind }: ToolKey): string {
  return `${kind}:${name}`;
}

function isRecent(atMs: number, nowMs: number): boolean {
  return nowMs >= atMs && nowMs - atMs < KNOWN_FOR_MS;
}
