/** F18 on a real edge: a thousand hosts that are simulated in this process lose all their links in one moment, and come back. */
import { afterAll, beforeAll, expect, test } from 'vitest';
import { ScriptedStack } from '../e2e/scripted-stack.ts';
import { until } from '../e2e/until.ts';
import { SCRIPTED_IMAGE } from '../fixtures/edge-double/scripted-sandboxes.ts';
import { nodeTransport } from '../fixtures/host-double/node-transport.ts';
import { type SimulatedHost, simulateHosts } from '../fixtures/host-double/simulated-hosts.ts';

const HOSTS = 1_000;
const SESSIONS = 200;
const AT_ONCE = 20;

let edge: ScriptedStack;
let hosts: SimulatedHost[];

beforeAll(async () => {
  edge = await ScriptedStack.start();
  hosts = await simulateHosts(HOSTS, nodeTransport(edge.stack.url, edge.stack.keys.edge_origin), {
    images: [{ name: 'python', digest: SCRIPTED_IMAGE }],
    capacity: 8,
    enrollmentToken: () => edge.stack.operator.createEnrollmentToken(),
  });
}, 900_000);
afterAll(async () => {
  for (const host of hosts) host.stop();
  await edge.stop();
});

test('F18 a thousand hosts come back by themselves within half a minute, and no session is lost', async () => {
  const sessions = [];
  while (sessions.length < SESSIONS) {
    sessions.push(...(await Promise.all(Array.from({ length: AT_ONCE }, () => edge.api.open()))));
  }
  const cutAtMs = performance.now();
  edge.stack.crashWorkerd();
  await until('the first host noticed', 30_000, async () =>
    hosts.some(({ isLinked }) => !isLinked) ? true : undefined,
  );
  await until('all hosts are linked', 60_000, async () =>
    hosts.every(({ isLinked }) => isLinked) ? true : undefined,
  );
  const back = hosts
    .map(({ linkedAtMs }) => Math.round((linkedAtMs.at(-1) ?? 0) - cutAtMs))
    .toSorted((a, b) => a - b);
  const within = (windowMs: number) =>
    Math.max(...back.map((atMs, index) => back.findLastIndex((one) => one < atMs + windowMs) - index + 1));
  console.log(
    `${HOSTS} hosts back after ${back[0]} to ${back.at(-1)} ms, half of them after ${back[HOSTS / 2]} ms, at most ${within(1_000)} in a second`,
  );
  expect(back.at(-1)).toBeLessThan(30_000);
  expect(within(100)).toBeLessThan(HOSTS / 4);
  await until('the edge has them all', 60_000, async () =>
    (await edge.stack.operator.hosts()).filter(({ state }) => state === 'connected').length === HOSTS
      ? true
      : undefined,
  );
  const answers = [];
  while (answers.length < SESSIONS) {
    const some = sessions.slice(answers.length, answers.length + AT_ONCE);
    answers.push(...(await Promise.all(some.map((session) => session.sh('echo back')))));
  }
  expect(answers.filter(({ status, state_lost }) => status !== 'succeeded' || state_lost)).toEqual([]);
}, 600_000);
