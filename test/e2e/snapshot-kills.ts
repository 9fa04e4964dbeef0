/**
 * Kills the host agent, workerd, or what is on its way to the storage at seeded points between a checkpoint and its stored
 * snapshot, and between that and the sandbox that is made of it. Afterwards all that the session holds is of one moment.
 */
import { existsSync } from 'node:fs';
import { rename, rm, writeFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { expect } from 'vitest';
import { verifyChain } from '../../shared/receipt-verify.ts';
import type { SnapshotKillPlan } from '../fixtures/kill-at-snapshot-step.ts';
import { PATIENCE_MS } from '../patience.ts';
import { Refused, type SessionClient } from './client.ts';
import { at, randomOf, seed, TERMINAL_WITHIN_MS } from './crash-checks.ts';
import { killPlanEnvironment, killPlanPath } from './kill-plan.ts';
import type { TestStack } from './stack.ts';
import { until } from './until.ts';

const HOOK = fileURLToPath(new URL('../fixtures/kill-at-snapshot-step.ts', import.meta.url));
const TARGETS = ['agent', 'workerd', 'connection', 'storage'] as const;
const WAYS = ['suspend', 'resume'] as const;
/** A request that is cut off is sent again; after so many the storage is taken to be away. */
const ENOUGH_CONNECTIONS = 40;
/** An idle session has more pieces than that. */
const PIECES = 4;
const LONGEST_AFTER_MS = 300;
const NUMBERS = 40;
const HEAP_BYTES = 4 * 1024 ** 2;
const BACK_WITHIN_MS = 180_000;

type Target = (typeof TARGETS)[number];
type Way = (typeof WAYS)[number];

export interface Kill {
  way: Way;
  target: Target;
  outcome: 'whole' | 'lost' | 'not hit';
}

export function snapshotKillEnvironment(stateDir: string): NodeJS.ProcessEnv {
  return killPlanEnvironment(HOOK, stateDir);
}

/** Each way and each target in turn; the step and the moment are of the seed. */
export async function killBetweenCheckpointAndSandbox(stack: TestStack, points: number): Promise<Kill[]> {
  console.log(`kill at ${points} points between checkpoint and snapshot, and back: seed ${seed}`);
  const random = randomOf(seed);
  const kills: Kill[] = [];
  let session = await stack.open();
  for (let point = 0; point < points; point += 1) {
    const way = at(WAYS, point % WAYS.length);
    const target = at(TARGETS, Math.floor(point / WAYS.length) % TARGETS.length);
    const plan = planOf(stack, { way, target, random });
    const context = `seed ${seed}, point ${point}, ${way}: ${JSON.stringify(plan)}`;
    const outcome = await killOnce(stack, session, { way, plan, mark: point, context });
    console.log(`${context}: ${outcome}`);
    kills.push({ way, target, outcome });
    if (outcome !== 'lost') continue;
    await expectChain(session, context);
    await session.delete();
    session = await stack.open();
  }
  await expectChain(session, `seed ${seed}, at the end`);
  await session.delete();
  return kills;
}

function planOf(
  stack: TestStack,
  { way, target, random }: { way: Way; target: Target; random: () => number },
): SnapshotKillPlan {
  const method = way === 'suspend' ? 'PUT' : 'GET';
  const isOfConnection = target === 'connection' || target === 'storage';
  const steps: SnapshotKillPlan['step'][] = [
    { command: way === 'suspend' ? 'checkpoint' : 'restore' },
    { method, of: 'manifest', nth: 0, moment: 'answered' },
    { method, of: 'chunks', nth: Math.floor(random() * PIECES), moment: 'answered' },
    { method, of: 'chunks', nth: Math.floor(random() * PIECES), moment: 'before' },
    { method, of: 'manifest', nth: 0, moment: 'before' },
  ];
  const possible = isOfConnection ? steps.slice(-2) : steps;
  const step = at(possible, Math.floor(random() * possible.length));
  // Behind the last request come the word that it is stored, its acknowledgement, and the end of the sandbox.
  const afterMs = 'moment' in step && step.moment === 'before' ? 0 : Math.floor(random() * LONGEST_AFTER_MS);
  if (isOfConnection) {
    return { step, afterMs: 0, target: { connections: target === 'storage' ? ENOUGH_CONNECTIONS : 1 } };
  }
  const pid = target === 'workerd' ? stack.stack.workerdPid() : undefined;
  return { step, afterMs, target: pid === undefined ? 'agent' : { pid } };
}

interface KillOptions {
  way: Way;
  plan: SnapshotKillPlan;
  mark: number;
  context: string;
}

async function killOnce(
  stack: TestStack,
  session: SessionClient,
  { way, plan, mark, context }: KillOptions,
): Promise<Kill['outcome']> {
  const path = killPlanPath(stack.stack.stateDir);
  for (const what of ['due', 'hit']) await rm(`${path}.${what}`, { force: true });
  await fill(session, mark);
  const running = await session.detach('shell', { command: counting(mark) }, { timeoutMs: 120_000 });
  await until(`${context}: the call runs`, TERMINAL_WITHIN_MS, async () =>
    (await session.execution(running.execution_id)).stdout === '' ? undefined : true,
  );
  if (way === 'resume') await acted(session, 'suspend', context);
  const { generation } = await session.describe();
  const former = { agent: stack.hostAgentPid(), workerd: stack.stack.workerdPid() };
  await put(path, plan);
  await session.api.request('POST', `${session.path}/${way}`).catch(cutOff);
  // The step comes before any answer; what is behind it may take longer.
  const isHit = existsSync(`${path}.due`);
  if (isHit) {
    await until(`${context}: it is carried out`, PATIENCE_MS, () => existsSync(`${path}.hit`) || undefined);
  }
  await put(path, null);
  if (isHit) await untilBack(stack, former, plan);
  const looked = await firstLook(session, context);
  const after = await session.describe();
  const told = `${context}: ${JSON.stringify({ looked, after }).slice(0, 1_500)}`;
  const isLost = looked.state_lost;
  expect(looked.value, told).toBe(isLost ? NOTHING : whole(mark));
  expect((await session.sh('echo "$MARK"')).stdout, told).toBe(isLost ? '\n' : `${mark}\n`);
  if (isLost) expect(mayBeLost({ way, plan, isRestored: after.generation > generation }), told).toBe(true);
  const ended = await session.ended(running.execution_id, BACK_WITHIN_MS);
  const numbers = Array.from({ length: NUMBERS }, (_, n) => `${mark}.${n}\n`).join('');
  if (ended.status === 'succeeded') expect(ended.stdout, told).toBe(numbers);
  else expect(numbers.startsWith(ended.stdout), `${told}: ${JSON.stringify(ended)}`).toBe(true);
  const mayEnd = isHit && plan.target === 'agent' ? ['succeeded', 'unknown'] : ['succeeded'];
  expect(mayEnd, `${told}: ${JSON.stringify(ended)}`).toContain(ended.status);
  if (!isHit) return 'not hit';
  return isLost ? 'lost' : 'whole';
}

/** What ran on a host dies with its agent; what was stored never does. */
function mayBeLost({
  way,
  plan: { step, target },
  isRestored,
}: {
  way: Way;
  plan: SnapshotKillPlan;
  isRestored: boolean;
}): boolean {
  if (target !== 'agent') return false;
  if (way === 'resume') return isRestored;
  const isStored = 'of' in step && step.of === 'manifest' && step.moment === 'answered';
  return !isStored;
}

const counting = (mark: number): string =>
  `for n in $(seq 0 ${NUMBERS - 1}); do echo ${mark}.$n; sleep 0.05; done`;

/** At once, for the agent looks whenever it likes. */
async function put(path: string, plan: SnapshotKillPlan | null): Promise<void> {
  await writeFile(`${path}.draft`, JSON.stringify(plan));
  await rename(`${path}.draft`, path);
}

/** The same mark in a variable, in memory, in three files, and in the shell. */
async function fill(session: SessionClient, mark: number): Promise<void> {
  const code = `import os, random
mark, heap = ${mark}, random.Random(${mark}).randbytes(${HEAP_BYTES})
for path in ('/workspace/mark', '/tmp/mark', '/workspace/removed'):
    open(path, 'w').write(str(mark))
removed = open('/workspace/removed')
os.unlink('/workspace/removed')`;
  const filled = await session.py(code);
  expect(filled, `mark ${mark}: ${JSON.stringify(filled)}`).toMatchObject({
    status: 'succeeded',
    state_lost: false,
  });
  await session.sh(`export MARK=${mark}`);
}

const LOOK = `import os, random
def read(path):
    return open(path).read() if os.path.exists(path) else None
kept = globals()
(kept.get('mark'), 'heap' in kept and heap == random.Random(mark).randbytes(len(heap)) and len(heap),
 read('/workspace/mark'), read('/tmp/mark'), removed.seek(0) == 0 and removed.read() if 'removed' in kept else None)`;
const NOTHING = '(None, False, None, None, None)';
const whole = (mark: number): string => `(${mark}, ${HEAP_BYTES}, '${mark}', '${mark}', '${mark}')`;

/** The connection to an edge that is killed is cut. */
function cutOff(error: unknown): void {
  if (!(error instanceof TypeError)) throw error;
}

async function untilBack(
  { stack }: TestStack,
  former: { agent: number; workerd: number | undefined },
  { target }: SnapshotKillPlan,
): Promise<void> {
  if (target !== 'agent' && !('pid' in target)) return;
  await until('what was killed is started again', BACK_WITHIN_MS, () => {
    const [pid, before] =
      target === 'agent' ? [stack.hostAgentPid(), former.agent] : [stack.workerdPid(), former.workerd];
    return pid === undefined || pid === before ? undefined : true;
  });
  await stack.ready();
}

async function acted(session: SessionClient, name: Way, context: string): Promise<void> {
  const answer = await session.api.request('POST', `${session.path}/${name}`);
  expect(answer.status, `${context}: ${answer.text}`).toBe(200);
}

/** Its first call once it takes one again. What it is refused with meanwhile can be tried again. */
function firstLook(session: SessionClient, context: string) {
  return until(`${context}: the session takes a call`, BACK_WITHIN_MS, async () => {
    try {
      const looked = await session.py(LOOK);
      return looked.status === 'refused' ? undefined : looked;
    } catch (error: unknown) {
      if (error instanceof TypeError) return undefined;
      if (error instanceof Refused && error.problem.retryable) return undefined;
      throw error;
    }
  });
}

async function expectChain(session: SessionClient, context: string): Promise<void> {
  const exported = await session.receipts();
  const chain = await verifyChain(exported.receipts, exported.keys, session.id);
  expect(chain.ok, `${context}: ${JSON.stringify(chain).slice(0, 300)}`).toBe(true);
}
