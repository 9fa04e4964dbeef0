/** Requests that were let in and are not answered: in all, of each tenant, and of each of its subjects. */

export interface Asking {
  tenant: string;
  subject: string;
}

interface Share {
  came: number;
  underWay: number;
}

/** What came in one stretch of time. */
class Window {
  readonly beganAtMs: number;
  isOld = false;
  readonly tenants = new Map<string, Share>();
  /** By tenant. */
  readonly subjects = new Map<string, Map<string, Share>>();

  constructor(beganAtMs: number) {
    this.beganAtMs = beganAtMs;
  }

  sharesOf({ tenant, subject }: Asking): [Share, Share] {
    return [
      entryOf(this.tenants, tenant, newShare),
      entryOf(entryOf(this.subjects, tenant, newMap), subject, newShare),
    ];
  }
}

/** A request that is older waits for a program or a host, and no more for the isolate. */
const YOUNG_MS = 2_000;

export class UnderWay {
  readonly #young: Window[] = [];
  readonly #tenants = new Map<string, number>();
  readonly #subjects = new Map<string, number>();
  #now = new Window(Number.NEGATIVE_INFINITY);
  #total = 0;

  get total(): number {
    return this.#total;
  }

  ofTenant(tenant: string): number {
    return this.#tenants.get(tenant) ?? 0;
  }

  ofSubject(asking: Asking): number {
    return this.#subjects.get(keyOf(asking)) ?? 0;
  }

  came(asking: Asking): void {
    for (const share of this.#now.sharesOf(asking)) share.came += 1;
  }

  /** What it gives is called when the request was answered; one whose client left never is. */
  begin(asking: Asking): () => void {
    const window = this.#now;
    const shares = window.sharesOf(asking);
    for (const share of shares) share.underWay += 1;
    this.#add(asking, 1);
    return () => {
      for (const share of shares) share.underWay -= 1;
      if (!window.isOld) this.#add(asking, -1);
    };
  }

  /** The next stretch of time begins; what was asked for in the one that ends, by tenant and by its subjects. */
  next(nowMs: number): { tenants: ReadonlyMap<string, number>; subjectsOf: (tenant: string) => number[] } {
    const ended = this.#now;
    this.#now = new Window(nowMs);
    this.#young.push(ended);
    const isOld = ({ beganAtMs }: Window) => beganAtMs < nowMs - YOUNG_MS;
    while (this.#young[0] !== undefined && isOld(this.#young[0])) this.#age(this.#young.shift());
    return {
      tenants: new Map([...ended.tenants].map(([tenant, { came }]) => [tenant, came])),
      subjectsOf: (tenant) => [...(ended.subjects.get(tenant)?.values() ?? [])].map(({ came }) => came),
    };
  }

  #age(window: Window | undefined): void {
    if (window === undefined) return;
    window.isOld = true;
    for (const [tenant, subjects] of window.subjects) {
      for (const [subject, { underWay }] of subjects) this.#add({ tenant, subject }, -underWay);
    }
  }

  #add(asking: Asking, more: number): void {
    if (more === 0) return;
    this.#total += more;
    addTo(this.#tenants, asking.tenant, more);
    addTo(this.#subjects, keyOf(asking), more);
  }
}

function keyOf({ tenant, subject }: Asking): string {
  return `${tenant}:${subject}`;
}

function addTo(counts: Map<string, number>, name: string, more: number): void {
  const count = (counts.get(name) ?? 0) + more;
  if (count === 0) counts.delete(name);
  else counts.set(name, count);
}

function entryOf<T>(entries: Map<string, T>, name: string, make: () => T): T {
  const known = entries.get(name);
  if (known !== undefined) return known;
  const fresh = make();
  entries.set(name, fresh);
  return fresh;
}

const newShare = (): Share => ({ came: 0, underWay: 0 });
const newMap = () => new Map<string, Share>();
