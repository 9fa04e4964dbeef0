/** What must hold after anything died: one end for each execution, no program run twice, a chain without a gap. */
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'vitest';
import { JournalEntrySchema } from '../../host-agent/journal/entries.ts';
import { decodeRecord } from '../../host-agent/journal/record-format.ts';
import { processStartTicks } from '../../host-agent/process/process-identity.ts';
import type { Execution } from '../../shared/execution.ts';
import { verifyChain } from '../../shared/receipt-verify.ts';
import { Refused, type SessionClient } from './client.ts';
import { processesOf } from './leftovers.ts';
import { ORPHAN_GRACE_MS } from './stack.ts';
import { until } from './until.ts';

export const TERMINAL_WITHIN_MS = 65_000;
/** One for all crash tests of a run; the same seed gives the same crashes. */
export const seed = Number(process.env.SANDGATE_TEST_SEED ?? Date.now() % 1_000_000);

export interface Call {
  /** Names the call in messages. */
  mark: string;
  execution: Execution;
  /** What it prints when nothing interrupts it. */
  stdout: string;
}

/** A detached call that leaves its mark in the session's file system, and says how many marks of it there are. */
export async function acceptMarking(session: SessionClient, mark: string, steps: number): Promise<Call> {
  const numbers = Array.from({ length: steps }, (_, index) => index + 1);
  const command = `echo ${mark} >> /tmp/starts; echo started $(grep -c '^${mark}$' /tmp/starts); for i in ${numbers.join(' ')}; do sleep 0.1; echo $i; done`;
  const execution = await session.detach('shell', { command }, { timeoutMs: 30_000 });
  return { mark, execution, stdout: `started 1\n${numbers.map((number) => `${number}\n`).join('')}` };
}

/** mulberry32: small, and the same sequence for the same seed. */
export function randomOf(state: number): () => number {
  let value = state;
  return () => {
    value = (value + 0x6d2b79f5) | 0;
    let mixed = Math.imul(value ^ (value >>> 15), 1 | value);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** Executions that the host's journal has a start of, in the order of the starts. */
export async function journalledStarts(stateDir: string): Promise<string[]> {
  const bytes = await readFile(join(stateDir, 'host/journal/journal'));
  const starts: string[] = [];
  for (
    let decoded = decodeRecord(bytes, 0);
    decoded !== undefined;
    decoded = decodeRecord(bytes, decoded.end)
  ) {
    const entry = JournalEntrySchema.parse(decoded.record.header);
    if (entry.kind === 'started') starts.push(entry.execution_id);
  }
  return starts;
}

/** Runs a call once the session takes one again; what it waits for must be retryable. */
export async function firstCallAfter(session: SessionClient, command: string): Promise<Execution> {
  let refusal = 'not refused';
  const once = async (): Promise<Execution | undefined> => {
    const ran = await session.sh(command);
    // It came while the end of the former sandbox was being told: nothing of it ran.
    return ran.status === 'refused' ? undefined : ran;
  };
  const call = until(`${session.id} runs calls again`, TERMINAL_WITHIN_MS, async () =>
    once().catch((error: unknown) => {
      refusal = error instanceof Error ? error.message : 'unknown';
      if (error instanceof Refused && error.problem.retryable) return undefined;
      // The connection to an edge that died is cut.
      if (error instanceof TypeError) return undefined;
      throw error;
    }),
  );
  return call.catch((error: unknown) => {
    throw new Error(`${error instanceof Error ? error.message : ''}, last refused: ${refusal}`);
  });
}

/** The execution has one terminal status, in its view, in the history, and in its events. */
export async function expectOneEnd(
  session: SessionClient,
  { execution: accepted, mark, stdout }: Call,
): Promise<Execution> {
  const ended = await session.ended(accepted.execution_id, TERMINAL_WITHIN_MS);
  const context = `seed ${seed}, ${mark}: ${JSON.stringify(ended).slice(0, 400)}`;
  expect(['succeeded', 'unknown', 'crashed', 'cancelled', 'failed', 'refused'], context).toContain(
    ended.status,
  );
  if (ended.status === 'succeeded') expect(ended.stdout, context).toBe(stdout);
  else expect(ended.stdout.match(/started/g)?.length ?? 0, context).toBeLessThanOrEqual(1);
  expect(ended.stdout, context).not.toMatch(/started ([02-9]|1\d)/);
  const { executions } = await session.executions();
  expect(executions.filter(({ execution_id: id }) => id === ended.execution_id)).toHaveLength(1);
  const events = await (await session.events(ended.execution_id)).collect();
  expect(events.events.filter(({ event }) => event.event === 'end')).toHaveLength(1);
  expect(events.end?.status, context).toBe(ended.status);
  return ended;
}

/** Every execution that started has one receipt, and the chain holds them all. */
export async function expectWholeChain(
  session: SessionClient,
  ended: readonly Execution[],
  journalled: ReadonlySet<string>,
): Promise<void> {
  const exported = await session.receipts();
  const chain = await verifyChain(exported.receipts, exported.keys, session.id);
  if (!chain.ok) throw new Error(`seed ${seed}: ${chain.code}: ${chain.detail}`);
  const receipts = new Map(chain.value.map((receipt) => [receipt.execution_id, receipt]));
  expect(receipts.size).toBe(chain.value.length);
  for (const execution of ended) {
    const receipt = receipts.get(execution.execution_id);
    const hasStarted = journalled.has(execution.execution_id) || execution.status === 'succeeded';
    if (hasStarted) expect(receipt, `seed ${seed}: ${JSON.stringify(execution)}`).toBeDefined();
    if (receipt !== undefined) expect(receipt.status).toBe(execution.status);
  }
}

export function countsOf(executions: readonly Execution[]): Record<string, number> {
  const counts: Record<string, number> = {};
  for (const { status } of executions) counts[status] = (counts[status] ?? 0) + 1;
  return counts;
}

export function at<Value>(values: readonly Value[], index: number): Value {
  const value = values[index];
  if (value === undefined) throw new RangeError(`no value at ${index} of ${values.length}`);
  return value;
}

/** With what tells each from a later one of the same number. */
export async function timedProcesses(stateDir: string) {
  return (await processesOf(stateDir)).map((process) => ({
    ...process,
    ticks: processStartTicks(process.pid),
  }));
}

/** It ends with the agent that it keeps streams for now. */
const isKeeper = (command: string): boolean => command.includes('/stream-keeper keep ');

/** What lives on of a former agent is of a sandbox that was at rest, and that a session has; and who kept its streams. */
export async function untilNoOrphan(
  what: string,
  former: Awaited<ReturnType<typeof timedProcesses>>,
  sessions: readonly SessionClient[],
): Promise<void> {
  await until(what, ORPHAN_GRACE_MS, async () => {
    const described = await Promise.all(sessions.map((session) => session.describe().catch(() => undefined)));
    const owned = described.flatMap((session) => session?.sandbox_id ?? []);
    const orphans = former.filter(
      ({ pid, ticks, command }) =>
        ticks !== undefined &&
        processStartTicks(pid) === ticks &&
        !isKeeper(command) &&
        !owned.some((sandboxId) => command.includes(sandboxId)),
    );
    return orphans.length > 0 ? undefined : true;
  });
}
