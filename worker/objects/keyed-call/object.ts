/**
 * One call that the gateway makes in no session, with an `Idempotency-Key`: written before it is made, so that it is made
 * once, and kept for as long as its key is answered.
 */
import { DurableObject } from 'cloudflare:workers';
import type { Envelope } from '../../../shared/dsse.ts';
import { failure, type Outcome, success } from '../../../shared/errors.ts';
import type { Execution } from '../../../shared/execution.ts';
import { configurationOf } from '../../configuration.ts';
import type { Env } from '../../env.ts';
import { earliest } from '../earliest.ts';
import { ringBy } from '../ring-by.ts';
import type { EdgeCall } from '../session/edge-calls/edge-call.ts';
import { EdgeCalls } from '../session/edge-calls/edge-calls.ts';
import { EdgeReceipts } from '../session/edge-receipts/edge-receipts.ts';
import { KEYS_LIVE_MS } from '../session/retention/retention.ts';
import type { KeyedCallPlace, KeyedCallPort } from './port.ts';
import { type KeyedCall, KeyedCallStore } from './store.ts';

/** Behind the tenant, which forgets the key after a day: the object has no second call. */
const KEPT_MS = KEYS_LIVE_MS + 3_600_000;
/** Who waits for the first call looks again so often, should its end have been told to nobody. */
const LOOK_MS = 5_000;

interface Parts {
  calls: EdgeCalls;
  receipts: EdgeReceipts;
}

export class KeyedCallObject extends DurableObject<Env> implements KeyedCallPort {
  readonly #store: KeyedCallStore;
  #made: Parts | undefined;

  constructor(ctx: DurableObjectState, env: Env) {
    super(ctx, env);
    this.#store = new KeyedCallStore(ctx.storage);
    void ctx.blockConcurrencyWhile(async () => {
      const chain = () => ({ facts: this.#known, epoch: 1, chainSeq: 0, chainSha256: '' });
      const receipts = new EdgeReceipts(ctx.storage, chain, await configurationOf(env));
      const told = { began: () => undefined, ended: () => undefined };
      this.#made = { receipts, calls: new EdgeCalls(ctx.storage, receipts, told) };
    });
  }

  get #parts(): Parts {
    if (this.#made === undefined) throw new Error('the object did not start');
    return this.#made;
  }

  get #known(): KeyedCall {
    const known = this.#store.load();
    if (known === undefined) throw new Error('there is no call');
    return known;
  }

  async begin(
    place: KeyedCallPlace,
    call: Omit<EdgeCall, 'idempotency'>,
  ): Promise<Outcome<Execution | null>> {
    const known = this.#store.load();
    const executionId = call.execution.execution_id;
    if (known !== undefined) return this.#repeated(known, { isAgain: known.executionId === executionId });
    const nowMs = Date.now();
    this.#store.insert({ ...place, executionId, begunAtMs: nowMs });
    const begun = this.#parts.calls.begin(
      { ...call, idempotency: null },
      { afterN: 0, nowMs, isDetached: false },
    );
    await this.#look();
    return begun;
  }

  /** `isAgain`: the one that may make it asks again, for it was not answered. */
  async #repeated({ executionId }: KeyedCall, { isAgain }: { isAgain: boolean }) {
    const first = await this.#first(executionId);
    return first.ok && first.value.status === 'running' && isAgain ? success(null) : first;
  }

  async ended(): Promise<Outcome<Execution>> {
    const { executionId } = this.#known;
    for (;;) {
      const first = await this.#first(executionId);
      if (!first.ok || first.value.status !== 'running') return first;
      await this.#parts.calls.wait(executionId, LOOK_MS);
    }
  }

  async #first(executionId: string): Promise<Outcome<Execution>> {
    const { calls, receipts } = this.#parts;
    await receipts.signed();
    const execution = calls.find(executionId, Date.now());
    return execution === undefined ? failure('internal', 'the call is not kept') : success(execution);
  }

  async end(execution: Execution): Promise<Outcome<Envelope | null>> {
    const { calls, receipts } = this.#parts;
    const { execution_id: id, status } = execution;
    const envelope = await calls.end(execution);
    await this.#look();
    // Told again it has ended already: as it says, or as one whose end was not seen.
    const isAsSaid = envelope !== null || calls.find(id, Date.now())?.status === status;
    return success(envelope ?? (isAsSaid ? ((await receipts.of(id)) ?? null) : null));
  }

  override async alarm(): Promise<void> {
    const nowMs = Date.now();
    if (nowMs >= (this.#store.load()?.begunAtMs ?? 0) + KEPT_MS) return this.ctx.storage.deleteAll();
    this.#parts.calls.check(nowMs);
    await this.#look();
  }

  async #look(): Promise<void> {
    const { begunAtMs } = this.#known;
    await ringBy(
      this.ctx.storage,
      earliest([this.#parts.calls.nextMoment(), begunAtMs + KEPT_MS]) ?? begunAtMs,
    );
  }
}
