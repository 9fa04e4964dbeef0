/** What ran in a session, whoever ran it: executions of hosts, calls that the edge made, and those of programs. */
import { failure, type Outcome, success } from '../../../../shared/errors.ts';
import type { Execution } from '../../../../shared/execution.ts';
import { isTerminal } from '../../../../shared/lifecycle.ts';
import type { Caller } from '../../caller.ts';
import { notFound } from '../lifecycle/creation.ts';
import type { AwaitedCall, ExecutionPage, ExecutionQuery } from '../port.ts';
import { ROWS_PER_EXECUTION } from '../rows/row-numbers.ts';
import type { SessionRuntime } from '../runtime.ts';
import { find, findKept } from './calls.ts';

export function getExecution(
  runtime: SessionRuntime,
  caller: Caller,
  { executionId, encoding }: { executionId: string; encoding?: 'utf-8' | 'base64' | undefined },
): Outcome<Execution> {
  const found = find(runtime, caller, executionId);
  if (found.ok) {
    return success(runtime.executions.view(found.value, encoding === undefined ? {} : { encoding }));
  }
  if (runtime.row.ownedBy(caller) === undefined) return notFound();
  const execution =
    runtime.edgeCalls.find(executionId, Date.now()) ?? runtime.programs.records.find(executionId);
  return execution === undefined ? failure('not_found', 'no such execution') : success(execution);
}

/** How it stands after that time at most; also of a session that has ended, where a key is answered with it. */
export async function recall(
  runtime: SessionRuntime,
  caller: Caller,
  { executionId, waitMs }: { executionId: string; waitMs: number },
): Promise<Outcome<Execution>> {
  const found = findKept(runtime, caller, executionId);
  return found.ok
    ? runtime.executions.within(found.value, waitMs)
    : getExecution(runtime, caller, { executionId });
}

/** Calls of programs are looked at again; of those at the edge the end is told. */
const LOOK_MS = 1_000;

/** Resolves when the call has ended or something was said of it, or after that time with how it stands. */
export async function waitCall(
  runtime: SessionRuntime,
  caller: Caller,
  { executionId, waitMs }: { executionId: string; waitMs: number },
): Promise<Outcome<AwaitedCall>> {
  const look = (): Outcome<AwaitedCall> => {
    const found = getExecution(runtime, caller, { executionId });
    if (!found.ok) return found;
    return success({ execution: found.value, progress: runtime.edgeCalls.progressOf(executionId) });
  };
  const found = look();
  if (!found.ok || isTerminal(found.value.execution.status) || waitMs === 0) return found;
  const isAtEdge = runtime.edgeCalls.find(executionId, Date.now()) !== undefined;
  await runtime.edgeCalls.wait(executionId, isAtEdge ? waitMs : Math.min(waitMs, LOOK_MS));
  return look();
}

/**
 * Where something stands in the history: executions have numbers; calls of the `n`th and, higher, what the edge called after
 * it began have places behind it.
 */
interface Place {
  n: number;
  behind: number;
}

interface Found {
  place: Place;
  view: Execution;
}

export function list(runtime: SessionRuntime, caller: Caller, query: ExecutionQuery): Outcome<ExecutionPage> {
  if (runtime.row.ownedBy(caller) === undefined) return notFound();
  const newest = { n: runtime.executions.total + 1, behind: 0 };
  const before = query.cursor === undefined ? newest : placeIn(query.cursor, newest.n);
  if (before === undefined) {
    return failure('invalid_request', 'the cursor is not one of this list', {
      violations: [{ path: 'query.cursor', expected: 'next_cursor of a former answer' }],
    });
  }
  const found = foundBefore(runtime, before, query.limit + 1, query.inner ?? false);
  const shown = found.slice(0, query.limit);
  const last = shown.at(-1);
  return success({
    executions: shown.map(({ view }) => view),
    next_cursor: found.length > shown.length && last !== undefined ? cursorAt(last.place) : null,
  });
}

/** Newest first. */
function foundBefore(runtime: SessionRuntime, before: Place, limit: number, inner: boolean): Found[] {
  const { n, behind } = before;
  const byHosts = runtime.executions.summariesBefore(behind > 0 ? n + 1 : n, limit);
  const byEdge = runtime.edgeCalls.summariesBefore(
    { afterN: n, n: Math.max(0, behind - ROWS_PER_EXECUTION) },
    { limit, nowMs: Date.now() },
  );
  const ofPrograms = inner
    ? runtime.programs.records.summariesBefore({ n, call: Math.min(behind, ROWS_PER_EXECUTION) }, limit)
    : [];
  const found: Found[] = [
    ...byHosts.map((one) => ({ place: { n: one.n, behind: 0 }, view: one.view })),
    ...byEdge.map((one) => ({
      place: { n: one.afterN, behind: ROWS_PER_EXECUTION + one.n },
      view: one.view,
    })),
    ...ofPrograms.map((one) => ({ place: { n: one.n, behind: one.call }, view: one.view })),
  ];
  const newestFirst = (left: Found, right: Found) =>
    right.place.n - left.place.n || right.place.behind - left.place.behind;
  return found.toSorted(newestFirst).slice(0, limit);
}

function cursorAt({ n, behind }: Place): string {
  return behind === 0 ? String(n) : `${n}.${behind}`;
}

function placeIn(cursor: string, newestN: number): Place | undefined {
  const match = /^(\d{1,15})(?:\.(\d{1,15}))?$/.exec(cursor);
  return match === null
    ? undefined
    : { n: Math.min(newestN, Number(match[1])), behind: Number(match[2] ?? 0) };
}
