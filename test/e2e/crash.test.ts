/** Whatever dies at whatever moment: every execution ends once, none runs twice, nothing is left behind. */
import { hash } from 'node:crypto';
import { describe, expect, test } from 'vitest';
import type { Execution } from '../../shared/execution.ts';
import { isTerminal } from '../../shared/lifecycle.ts';
import { readReceipt } from '../../shared/receipt-verify.ts';
import { PATIENCE_MS } from '../patience.ts';
import type { SessionClient } from './client.ts';
import {
  acceptMarking,
  at,
  type Call,
  countsOf,
  expectOneEnd,
  expectWholeChain,
  firstCallAfter,
  journalledStarts,
  randomOf,
  seed,
  TERMINAL_WITHIN_MS,
  timedProcesses,
  untilNoOrphan,
} from './crash-checks.ts';
import { collected, type SeenEvent } from './event-stream.ts';
import { cgroupsOf, processesOf } from './leftovers.ts';
import { ORPHAN_GRACE_MS, useStack } from './stack.ts';
import { pause, until } from './until.ts';

const HOST_CRASHES = 20;
const EDGE_CRASHES = 10;
/** A program runs about half of this, so a crash falls before, into and after it. */
const CRASH_WINDOW_MS = 1_200;
/** Without a pool: that no sandbox is left is looked for. */
const stack = useStack(() => ({ SANDGATE_POOL_CEILING: '0' }));

function accept(session: SessionClient, mark: string): Promise<Call> {
  return acceptMarking(session, mark, 6);
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
      const former = await timedProcesses(stateDir);
      await stack().stack.crashHostAgent();
      const starts = await journalledStarts(stateDir);
      expect(starts.length, `seed ${seed}, round ${round}: a start is journalled twice`).toBe(
        new Set(starts).size,
      );
      for (const id of starts) journalled.add(id);
      await until('the agent is started again', PATIENCE_MS, () =>
        stack().stack.hostAgentPid() === undefined || stack().stack.hostAgentPid() === agentPid
          ? undefined
          : true,
      );
      await stack().stack.ready();
      await untilNoOrphan(`no orphan of the former agent is left (round ${round})`, former, sessions);

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
    const running = await session.detach('shell', { command: 'echo begin; sleep 25' });
    const waiting = await session.detach('shell', { command: `echo "ran \${KEPT:-without}"` });
    await until('the first runs', PATIENCE_MS, async () =>
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
  }, 600_000);
});

describe('kill -9 of workerd between the events of a stream', () => {
  test('takes nothing from a reader that comes back: what it has is what was signed', async () => {
    const session = await stack().open();
    const { execution_id: executionId } = await session.detach('python', {
      code: "import time\nfor n in range(400):\n    print(n, '.' * 100, flush=True)\n    time.sleep(0.02)",
    });
    const events: SeenEvent[] = [];
    let crashes = 0;
    const crashing: Promise<void>[] = [];
    await until('the end of the stream', PATIENCE_MS, async () => {
      // A cut ends the stream with an error or without a word: either way the last id is where it goes on.
      const stream = await session.events(executionId, events.at(-1)?.id).catch(() => undefined);
      if (stream === undefined) return undefined;
      try {
        for await (const seen of stream) {
          events.push(seen);
          const isTime = seen.cursor.stdoutBytes > (crashes + 1) * 10_000 && crashes < 3;
          if (!isTime) continue;
          crashes += 1;
          crashing.push(stack().restartEdge());
        }
      } catch {
        // The edge is gone; it comes back.
      }
      return events.at(-1)?.event.event === 'end' ? true : undefined;
    });
    await Promise.all(crashing);
    expect(crashes).toBe(3);
    const { stdoutBytes, gaps, end } = collected(events);
    expect(gaps).toEqual([]);
    expect(end).toMatchObject({ status: 'succeeded', state_lost: false });
    const read = readReceipt(await session.receipt(executionId));
    if (!read.ok) throw new Error(read.detail);
    expect(hash('sha256', stdoutBytes)).toBe(read.value.receipt.stdout.sha256);
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
  }, 300_000);
});
