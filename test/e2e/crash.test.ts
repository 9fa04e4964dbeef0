/** Whatever dies at whatever moment: every execution ends once, none runs twice, nothing is left behind. */
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { JournalEntrySchema } from '../../host-agent/journal/entries.ts';
import { decodeRecord } from '../../host-agent/journal/record-format.ts';
import { processStartTicks } from '../../scripts/process/process-identity.ts';
import type { Execution } from '../../shared/execution.ts';
import { isTerminal } from '../../shared/lifecycle.ts';
import { verifyChain } from '../../shared/receipt-verify.ts';
import { Refused, type SessionClient } from './client.ts';
import { cgroupsOf, processesOf } from './leftovers.ts';
import { ORPHAN_GRACE_MS, useStack } from './stack.ts';
import { pause, until } from './until.ts';

const HOST_CRASHES = 20;
const EDGE_CRASHES = 10;
/** A program runs about half of this, so a crash falls before, into and after it. */
const CRASH_WINDOW_MS = 1_200;
const TERMINAL_WITHIN_MS = 65_000;
const seed = Number(process.env.SANDGATE_TEST_SEED ?? Date.now() % 1_000_000);
const stack = useStack();

/** mulberry32: small, and the same sequence for the same seed. */
function randomOf(state: number): () => number {
  let value = state;
  return () => {
    value = (value + 0x6d2b79f5) | 0;
    let mixed = Math.imul(value ^ (value >>> 15), 1 | value);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** Leaves its mark in the session's file system when it starts, and says how many marks of it there are. */
function marking(mark: string): string {
  return `echo ${mark} >> /tmp/starts; echo started $(grep -c '^${mark}$' /tmp/starts); for i in 1 2 3 4 5 6; do sleep 0.1; echo $i; done`;
}

/** Executions that the host's journal has a start of, in the order of the starts. */
async function journalledStarts(stateDir: string): Promise<string[]> {
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

interface Call {
  mark: string;
  execution: Execution;
}

async function accept(session: SessionClient, mark: string): Promise<Call> {
  return { mark, execution: await session.detach('shell', { command: marking(mark) }, { timeoutMs: 8_000 }) };
}

/** Runs a call once the session takes one again; what it waits for must be retryable. */
async function firstCallAfter(session: SessionClient, command: string): Promise<Execution> {
  return until(`${session.id} runs calls again`, TERMINAL_WITHIN_MS, async () =>
    session.sh(command).catch((error: unknown) => {
      if (error instanceof Refused && error.problem.retryable) return undefined;
      // The connection to an edge that died is cut.
      if (error instanceof TypeError) return undefined;
      throw error;
    }),
  );
}

/** The execution has one terminal status, in its view, in the history, and in its events. */
async function expectOneEnd(session: SessionClient, { execution: accepted, mark }: Call): Promise<Execution> {
  const ended = await session.ended(accepted.execution_id, TERMINAL_WITHIN_MS);
  const context = `seed ${seed}, ${mark}: ${JSON.stringify(ended).slice(0, 400)}`;
  expect(['succeeded', 'unknown', 'crashed', 'cancelled', 'failed', 'refused'], context).toContain(
    ended.status,
  );
  if (ended.status === 'succeeded') expect(ended.stdout, context).toBe('started 1\n1\n2\n3\n4\n5\n6\n');
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
async function expectWholeChain(
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

describe('kill -9 of the host agent', () => {
  test(`${HOST_CRASHES} times during calls loses none, repeats none and leaves no orphan`, async () => {
    console.log(`crash of the host agent: seed ${seed}`);
    const random = randomOf(seed);
    const { stateDir } = stack().stack;
    const sessions = [await stack().open(), await stack().open()];
    const ended: Execution[][] = sessions.map(() => []);
    const journalled = new Set<string>();
    for (let round = 0; round < HOST_CRASHES; round += 1) {
      // The second call of the first session waits behind its first one.
      const calls = await Promise.all([
        accept(at(sessions, 0), `r${round}a`),
        accept(at(sessions, 1), `r${round}b`),
      ]);
      const queued = await accept(at(sessions, 0), `r${round}c`);
      await pause(random() * CRASH_WINDOW_MS);
      const agentPid = stack().hostAgentPid();
      const former = (await processesOf(stateDir)).map(({ pid }) => ({ pid, ticks: processStartTicks(pid) }));
      await stack().stack.crashHostAgent();
      const starts = await journalledStarts(stateDir);
      expect(starts.length, `seed ${seed}, round ${round}: a start is journalled twice`).toBe(
        new Set(starts).size,
      );
      for (const id of starts) journalled.add(id);
      await until('the agent is started again', 30_000, () =>
        stack().stack.hostAgentPid() === undefined || stack().stack.hostAgentPid() === agentPid
          ? undefined
          : true,
      );
      await stack().stack.ready();
      await until(`no process of the former agent is left (round ${round})`, ORPHAN_GRACE_MS, () =>
        former.some(({ pid, ticks }) => ticks !== undefined && processStartTicks(pid) === ticks)
          ? undefined
          : true,
      );

      for (const [index, session] of sessions.entries()) {
        const own = index === 0 ? [at(calls, 0), queued] : [at(calls, 1)];
        const results = [];
        for (const call of own) results.push(await expectOneEnd(session, call));
        at(ended, index).push(...results);
        const after = await firstCallAfter(session, `sort /tmp/starts 2>/dev/null | uniq -d; echo here`);
        expect(after.stdout, `seed ${seed}, round ${round}: a program ran twice`).toBe('here\n');
        at(ended, index).push(after);
      }
    }
    for (const [index, session] of sessions.entries()) {
      const { sandbox_id: sandboxId } = await session.describe();
      await expectWholeChain(session, at(ended, index), journalled);
      const statuses = at(ended, index).map(({ status }) => status);
      expect(statuses.every((status) => isTerminal(status))).toBe(true);
      expect((await processesOf(stateDir)).some(({ command }) => command.includes(sandboxId ?? ''))).toBe(
        true,
      );
    }
    console.log(`ends after ${HOST_CRASHES} crashes: ${JSON.stringify(countsOf(ended.flat()))}`);
    expect(ended.flat().some(({ status }) => status === 'unknown')).toBe(true);
    expect(ended.flat().some(({ state_lost: lost }) => lost)).toBe(true);
    await Promise.all(sessions.map((session) => session.delete()));
    await until('no sandbox is left', ORPHAN_GRACE_MS, async () =>
      (await processesOf(stateDir)).some(({ command }) => command.includes('sbx-')) ||
      (await cgroupsOf(stateDir)).some((path) => path.includes('sbx-'))
        ? undefined
        : true,
    );
  }, 600_000);
});

describe('kill -9 of the host agent once', () => {
  test('lets a call that waited run in the new sandbox, and says that state is lost', async () => {
    const session = await stack().open();
    await session.sh('export KEPT=1');
    const running = await session.detach('shell', { command: 'echo begin; sleep 5' });
    const waiting = await session.detach('shell', { command: `echo "ran \${KEPT:-without}"` });
    await until('the first runs', 10_000, async () =>
      (await session.execution(running.execution_id)).stdout === 'begin\n' ? true : undefined,
    );
    await stack().stack.crashHostAgent();
    expect(await session.ended(running.execution_id, TERMINAL_WITHIN_MS)).toMatchObject({
      status: 'unknown',
      state_lost: true,
      stdout: 'begin\n',
    });
    expect(await session.ended(waiting.execution_id, TERMINAL_WITHIN_MS)).toMatchObject({
      status: 'succeeded',
      stdout: 'ran without\n',
      state_lost: true,
    });
    expect((await session.describe()).epoch).toBeGreaterThan(session.opened.epoch);
    await session.delete();
  });
});

describe('kill -9 of workerd', () => {
  test(`${EDGE_CRASHES} times during calls loses none and repeats none, and the session's state stays`, async () => {
    console.log(`crash of workerd: seed ${seed}`);
    const random = randomOf(seed + 1);
    const session = await stack().open();
    await session.py('kept = 41');
    const ended: Execution[] = [];
    for (let round = 0; round < EDGE_CRASHES; round += 1) {
      const mark = `w${round}`;
      const call = await accept(session, mark);
      const queued = await accept(session, `${mark}q`);
      await pause(random() * CRASH_WINDOW_MS);
      await stack().restartEdge();
      for (const one of [call, queued]) ended.push(await expectOneEnd(session, one));
      const after = await firstCallAfter(session, 'sort /tmp/starts | uniq -d; echo here');
      expect(after, `seed ${seed}, round ${round}: a program ran twice`).toMatchObject({
        stdout: 'here\n',
        state_lost: false,
      });
      for (const one of ended.slice(-2)) {
        if (one.status !== 'succeeded') continue;
        const count = await session.sh(`grep -c '^${one === ended.at(-2) ? mark : `${mark}q`}$' /tmp/starts`);
        expect(count.stdout).toBe('1\n');
      }
      ended.push(after);
    }
    console.log(`ends after ${EDGE_CRASHES} crashes: ${JSON.stringify(countsOf(ended))}`);
    expect(ended.filter(({ status }) => status === 'succeeded').length).toBeGreaterThan(EDGE_CRASHES);
    expect((await session.py('kept + 1')).value).toBe('42');
    await expectWholeChain(session, ended, new Set());
    await session.delete();
  }, 300_000);
});

describe('kill -9 of both at once', () => {
  test('leaves a session that answers, and an execution with one end', async () => {
    const session = await stack().open();
    const call = await accept(session, 'both');
    await pause(300);
    stack().stack.crashWorkerd();
    await stack().stack.crashHostAgent();
    await stack().stack.ready();
    const ended = await expectOneEnd(session, call);
    const after = await firstCallAfter(session, 'echo here');
    expect(after.stdout).toBe('here\n');
    await expectWholeChain(session, [ended, after], new Set());
    await session.delete();
  }, 120_000);
});

function countsOf(executions: readonly Execution[]): Record<string, number> {
  const counts: Record<string, number> = {};
  for (const { status } of executions) counts[status] = (counts[status] ?? 0) + 1;
  return counts;
}

function at<Value>(values: readonly Value[], index: number): Value {
  const value = values[index];
  if (value === undefined) throw new RangeError(`no value at ${index} of ${values.length}`);
  return value;
}
