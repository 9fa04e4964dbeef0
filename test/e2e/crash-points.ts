/** Kills the host agent at seeded steps of its journal: before a write, in the middle of one, and after it. */
import { existsSync } from 'node:fs';
import { readFile, rename, rm, writeFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { expect } from 'vitest';
import * as z from 'zod';
import type { Execution } from '../../shared/execution.ts';
import { PATIENCE_MS } from '../patience.ts';
import { Refused, type SessionClient } from './client.ts';
import {
  acceptMarking,
  type Call,
  countsOf,
  expectOneEnd,
  expectWholeChain,
  firstCallAfter,
  journalledStarts,
  randomOf,
  seed,
  timedProcesses,
  untilNoOrphan,
} from './crash-checks.ts';
import { killPlanEnvironment, killPlanPath } from './kill-plan.ts';
import { cgroupsOf } from './leftovers.ts';
import { ORPHAN_GRACE_MS, type TestStack } from './stack.ts';
import { until } from './until.ts';

const HOOK = fileURLToPath(new URL('../fixtures/kill-at-journal-step.ts', import.meta.url));
const PHASES = ['before', 'torn', 'after'] as const;
/** A round writes about this many times: sandbox, start and end of two calls, acknowledgements, a destroyed session. */
const WRITES_A_ROUND = 9;
const WRITES_OF_CALLS = 5;
/** Placing a session while its host dies takes seconds. */
const OTHER_SESSION_EVERY = 4;
const ROUNDS_A_SESSION = 10;
/** A run of hundreds takes the better part of an hour: it says how far it has come. */
const TELL_EVERY = 20;

const HitSchema = z.object({ phase: z.enum(PHASES), kinds: z.array(z.string()) });
type Hit = z.infer<typeof HitSchema>;

export function crashPointEnvironment(stateDir: string): NodeJS.ProcessEnv {
  return killPlanEnvironment(HOOK, stateDir);
}

/** Gives what was hit, one for each point. */
export async function killAtPoints(stack: TestStack, points: number): Promise<Hit[]> {
  console.log(`kill at ${points} steps of the journal: seed ${seed}`);
  const random = randomOf(seed);
  const hits: Hit[] = [];
  let session = await stack.open();
  let ended: Execution[] = [];
  const journalled = new Set<string>();
  const extras: SessionClient[] = [];
  const all: Execution[] = [];
  for (let point = 0; point < points; point += 1) {
    const withOtherSession = point % OTHER_SESSION_EVERY === 0;
    const phase = PHASES[point % PHASES.length] ?? 'after';
    const plan = {
      skip: Math.floor(random() * (withOtherSession ? WRITES_A_ROUND : WRITES_OF_CALLS)),
      phase,
      fraction: random(),
    };
    const context = `seed ${seed}, point ${point}: ${JSON.stringify(plan)}`;
    const { hit, calls, starts } = await killDuringCalls(stack, session, {
      plan,
      mark: `p${point}`,
      context,
      extras,
      withOtherSession,
    });
    hits.push(hit);
    for (const id of starts) journalled.add(id);
    const ends: Execution[] = [];
    for (const call of calls) ends.push(await expectOneEnd(session, call));
    const after = await firstCallAfter(session, 'sort /tmp/starts 2>/dev/null | uniq -d; echo here');
    const told = `${context}, hit ${JSON.stringify(hit)}: ${JSON.stringify(after).slice(0, 600)}`;
    expect(after.status, told).toBe('succeeded');
    expect(after.stdout, `${context}: a program ran twice`).toBe('here\n');
    ended.push(...ends, after);
    all.push(...ends, after);
    if ((point + 1) % TELL_EVERY === 0)
      console.log(`after ${point + 1} kills: ${JSON.stringify(countsOf(all))}`);
    if (point % ROUNDS_A_SESSION !== ROUNDS_A_SESSION - 1 && point !== points - 1) continue;
    await expectWholeChain(session, ended, journalled);
    await session.delete();
    if (point === points - 1) break;
    session = await stack.open();
    ended = [];
  }
  for (const extra of extras) await until(`${extra.id} is deleted`, PATIENCE_MS, () => isDeleted(extra));
  await until('no sandbox is left', ORPHAN_GRACE_MS, async () =>
    (await cgroupsOf(stack.stack.stateDir)).some((path) => path.includes('sbx-')) ? undefined : true,
  );
  return hits;
}

interface KillOptions {
  plan: object;
  mark: string;
  context: string;
  /** Gets the sessions that were opened beside: their sandboxes come and go. */
  extras: SessionClient[];
  /** Whether another session comes and goes meanwhile, so that its sandbox is journalled too. */
  withOtherSession: boolean;
}

interface Killed {
  hit: Hit;
  calls: Call[];
  /** Executions that the journal of the killed agent has a start of. */
  starts: string[];
}

async function killDuringCalls(
  stack: TestStack,
  session: SessionClient,
  { plan, mark, context, extras, withOtherSession }: KillOptions,
): Promise<Killed> {
  const { stateDir } = stack.stack;
  const path = killPlanPath(stateDir);
  await rm(`${path}.hit`, { force: true });
  const former = stack.hostAgentPid();
  const processes = await timedProcesses(stateDir);
  await writeFile(`${path}.draft`, JSON.stringify(plan));
  await rename(`${path}.draft`, path);
  const calls: Call[] = [];
  // A plan may fall behind the last write of the calls: then more calls follow.
  for (let round = 0; !existsSync(`${path}.hit`); round += 1) {
    expect(round, `${context}: the agent writes no journal`).toBeLessThan(10);
    for (const name of ['a', 'b']) {
      const call = await retryable(acceptMarking(session, `${mark}r${round}${name}`, 1));
      if (call !== undefined) calls.push(call);
    }
    if (withOtherSession) await openAndDelete(stack, extras);
    await until(`${context}: the agent dies, or its calls end`, PATIENCE_MS, async () => {
      if (existsSync(`${path}.hit`)) return true;
      const last = calls.at(-1)?.execution.execution_id ?? '';
      return (await session.execution(last)).finished_at === null ? undefined : true;
    });
  }
  const hit = HitSchema.parse(JSON.parse(await readFile(`${path}.hit`, 'utf8')));
  await until(`${context}: the agent is started again`, PATIENCE_MS, () => {
    const pid = stack.stack.hostAgentPid();
    return pid === undefined || pid === former ? undefined : true;
  });
  await stack.stack.ready();
  const owners = [session, ...extras];
  await untilNoOrphan(`${context}: no orphan of the former agent is left`, processes, owners);
  const starts = await journalledStarts(stateDir);
  expect(new Set(starts).size, `${context}: a start is journalled twice`).toBe(starts.length);
  return { hit, calls, starts };
}

async function openAndDelete(stack: TestStack, extras: SessionClient[]): Promise<void> {
  const extra = await retryable(stack.open());
  if (extra === undefined) return;
  extras.push(extra);
  await retryable(extra.delete());
}

/** Undefined where it was refused because something was just dying. */
async function retryable<Value>(call: Promise<Value>): Promise<Value | undefined> {
  try {
    return await call;
  } catch (error: unknown) {
    if (error instanceof Refused && error.problem.retryable) return undefined;
    throw error;
  }
}

async function isDeleted(session: SessionClient): Promise<true | undefined> {
  try {
    await session.delete();
    return true;
  } catch (error: unknown) {
    if (!(error instanceof Refused)) throw error;
    return error.status === 404 || error.status === 410 ? true : undefined;
  }
}
