/**
 * The record of one workflow. The engine of Workflows decides what is run when, and takes a run up again after a restart;
 * this object keeps what can be asked about it meanwhile, and whether it may go on.
 */
import { DurableObject } from 'cloudflare:workers';
import { failure, type Outcome, success } from '../../../shared/errors.ts';
import { isTerminal } from '../../../shared/lifecycle.ts';
import type { TaskStatus, Workflow } from '../../../shared/workflow.ts';
import type { Env } from '../../env.ts';
import { callObject } from '../../middleware/call-object.ts';
import type { Caller } from '../caller.ts';
import { logWarning } from '../log.ts';
import { approvalCalls, SAFE, tenantCalls } from '../object-calls.ts';
import { EngineRun } from '../runs/engine-run.ts';
import { RunOutbox } from '../runs/outbox.ts';
import { sessionObjectName } from '../session-name.ts';
import { addressOf, finishedEvent } from './finished.ts';
import type { NamedCall, Plan, RunEnd, WorkflowPort } from './port.ts';
import { type WorkflowHead, WorkflowStore } from './store.ts';
import { workflowEntry, workflowView } from './view.ts';

/** How often it looks whether its run is still there. */
const LOOK_MS = 30_000;
/** Kept for whoever asks, after its end. */
const RETENTION_MS = 7 * 86_400_000;

export class WorkflowObject extends DurableObject<Env> implements WorkflowPort {
  readonly #store: WorkflowStore;
  readonly #outbox: RunOutbox;

  constructor(ctx: DurableObjectState, env: Env) {
    super(ctx, env);
    this.#store = new WorkflowStore(ctx.storage);
    this.#outbox = new RunOutbox(ctx.storage, env.NOTICES);
  }

  async start(plan: Plan): Promise<Outcome<Workflow>> {
    if (this.#store.head() === undefined) {
      this.#store.insert(plan, new Date().toISOString());
      for (const name of Object.keys(plan.definition.tasks)) this.#store.putTask(name, 'pending', null);
      await this.ctx.storage.setAlarm(Date.now() + LOOK_MS);
    }
    await this.#runOf(plan).begin(plan.owner.tenant);
    await this.#tell();
    return this.#view();
  }

  async describe(caller: Caller): Promise<Outcome<Workflow>> {
    return this.#isOf(caller) ? this.#view() : notFound();
  }

  async cancel(caller: Caller): Promise<Outcome<Workflow>> {
    const head = this.#store.head();
    if (head === undefined || !this.#isOf(caller)) return notFound();
    if (head.status === 'running') this.#end({ status: 'cancelled', reason: 'cancelled by its owner' });
    if (this.#store.head()?.status === 'cancelled') await this.#stop(head);
    return this.#view();
  }

  async plan(): Promise<Outcome<Plan>> {
    const head = this.#store.head();
    return head === undefined ? notFound() : success(head.plan);
  }

  async sessionNamed(name: string, sessionId: string, isOwn: boolean): Promise<Outcome<null>> {
    this.#store.putSession(name, sessionId, isOwn);
    return success(null);
  }

  async taskBegins(task: string): Promise<Outcome<{ refusal: RunEnd['status'] | null }>> {
    const head = this.#store.head();
    if (head === undefined) return notFound();
    if (head.status !== 'running') return success({ refusal: head.status });
    if (Date.now() >= head.plan.endsBy) return success({ refusal: 'timeout' });
    const { tasks, on_failure } = head.plan.definition;
    const hasFailed = this.#store
      .tasks()
      .some(({ name, status }) => status === 'failed' && tasks[name]?.may_fail === false);
    // What runs where others failed is not kept from it by their failure.
    if (hasFailed && on_failure === 'stop' && tasks[task]?.run_on === 'success') {
      return success({ refusal: 'failed' });
    }
    this.#store.putTask(task, 'running', null);
    return success({ refusal: null });
  }

  async callBegun(call: NamedCall): Promise<Outcome<null>> {
    this.#store.putCall(call);
    // It began while the run was being cancelled.
    if (this.#store.head()?.status === 'cancelled') await this.#interrupt(call.session_id, call.execution_id);
    return success(null);
  }

  async taskEnded(task: string, status: TaskStatus, reason: string | null): Promise<Outcome<null>> {
    if (this.#store.head()?.status === 'running') this.#store.putTask(task, status, reason);
    return success(null);
  }

  async ended(end: RunEnd): Promise<Outcome<null>> {
    if (this.#store.head()?.status === 'running') this.#end(end);
    return success(null);
  }

  /** A run that is gone without a word has failed. */
  override async alarm(): Promise<void> {
    const head = this.#store.head();
    if (head === undefined) return;
    await this.#tell();
    if (head.status !== 'running') {
      await this.#forget(head);
      return;
    }
    await this.ctx.storage.setAlarm(Date.now() + LOOK_MS);
    const run = this.#runOf(head.plan);
    await run.begin(head.plan.owner.tenant);
    if ((await run.goesOn()) || this.#store.head()?.status !== 'running') return;
    this.#end({ status: 'failed', reason: 'its run ended without saying how' });
    await this.#stop(head);
  }

  #runOf({ workflowId }: Plan): EngineRun {
    const needsTakingUp = this.env.WORKFLOWS_NEED_TAKING_UP === 'true';
    return new EngineRun(this.env.WORKFLOW_RUN, { id: workflowId, needsTakingUp });
  }

  #end(end: RunEnd): void {
    const plan = this.#store.head()?.plan;
    const finishedAt = new Date().toISOString();
    this.ctx.storage.transactionSync(() => {
      this.#store.end(end, finishedAt);
      if (plan !== undefined) this.#outbox.put(finishedEvent(plan, end, finishedAt));
    });
    void this.ctx.storage.setAlarm(Date.now() + LOOK_MS);
    this.ctx.waitUntil(this.#tell());
    if (plan === undefined) return;
    this.#runOf(plan).forget();
    this.ctx.waitUntil(this.#outbox.send(addressOf(plan)));
  }

  async eventsTaken(eventIds: string[]): Promise<void> {
    this.#outbox.taken(eventIds);
  }

  /** What ended is kept for a while; then nobody has to know of it any more. */
  async #forget({ finished_at, plan }: WorkflowHead): Promise<void> {
    const goneAtMs = Date.parse(finished_at ?? '') + RETENTION_MS;
    if (Date.now() < goneAtMs) {
      await this.#outbox.send(addressOf(plan));
      const isTold = this.#store.head()?.told === this.#store.head()?.status && this.#outbox.isEmpty;
      await this.ctx.storage.setAlarm(isTold ? goneAtMs : Date.now() + LOOK_MS);
      return;
    }
    const { tenant } = plan.owner;
    const forgotten = await tenantCalls(this.env, tenant)(
      (stub) => stub.forgetWorkflow(plan.workflowId),
      SAFE,
    );
    if (forgotten.ok) await this.ctx.storage.deleteAll();
    else await this.ctx.storage.setAlarm(Date.now() + LOOK_MS);
  }

  /** The index of the tenant, where what it has of this is not so any more. Should it not be heard, the alarm says it again. */
  async #tell(): Promise<void> {
    const head = this.#store.head();
    if (head === undefined || head.told === head.status) return;
    const { tenant, subject } = head.plan.owner;
    const entry = workflowEntry(head);
    const told = await tenantCalls(this.env, tenant)((stub) => stub.recordWorkflow(subject, entry), SAFE);
    if (told.ok) this.#store.told(head.status);
    else logWarning('workflow_not_told', { workflow_id: entry.workflow_id, code: told.code });
  }

  /** Everything of a run that ended from outside. As often as wanted: what is stopped already stays so. */
  async #stop({ plan }: WorkflowHead): Promise<void> {
    await this.#runOf(plan).stop();
    const running = this.#store.calls().filter(({ call }) => !isTerminal(call.status));
    await Promise.all(running.map(({ call }) => this.#interrupt(call.session_id, call.execution_id)));
    const own = this.#store.sessions().filter((session) => session.is_own);
    await Promise.all(
      own.map((session) => this.#session(session.session_id, (stub, caller) => stub.destroy(caller))),
    );
  }

  /** A call that still waits for an approval is not the session's yet. */
  async #interrupt(sessionId: string, executionId: string): Promise<unknown> {
    const stopped = await this.#session(sessionId, (stub, caller) => stub.interrupt(caller, executionId));
    const owner = this.#store.head()?.plan.owner;
    if (owner === undefined || stopped?.ok !== false || stopped.code !== 'not_found') return stopped;
    const { tenant, subject } = owner;
    const approvals = approvalCalls(this.env, tenant);
    return approvals((stub) => stub.cancel({ tenant, subject }, { sessionId, executionId }), SAFE);
  }

  async #session<T>(
    sessionId: string,
    act: (stub: ReturnType<Env['SESSION']['getByName']>, caller: Caller) => Promise<Outcome<T>>,
  ): Promise<Outcome<T> | undefined> {
    const owner = this.#store.head()?.plan.owner;
    if (owner === undefined) return undefined;
    const caller = { tenant: owner.tenant, subject: owner.subject };
    const name = sessionObjectName(owner.tenant, sessionId);
    return callObject(() => act(this.env.SESSION.getByName(name), caller), { safe: true });
  }

  #isOf({ tenant, subject }: Caller): boolean {
    const owner = this.#store.head()?.plan.owner;
    return owner?.tenant === tenant && owner.subject === subject;
  }

  #view(): Outcome<Workflow> {
    const head = this.#store.head();
    if (head === undefined) return notFound();
    return success(
      workflowView(head, {
        sessions: this.#store.sessions(),
        tasks: this.#store.tasks(),
        calls: this.#store.calls(),
      }),
    );
  }
}

function notFound(): Outcome<never> {
  return failure('not_found', 'no such workflow, or not yours');
}
