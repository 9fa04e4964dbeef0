/** Two hundred hosts that are simulated and two agents, on one edge: they come, fill, drain, are lost, and come back. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { Refused, type SessionClient } from '../e2e/client.ts';
import { type ScriptedHost, ScriptedStack } from '../e2e/scripted-stack.ts';
import { until } from '../e2e/until.ts';
import { SCRIPTED_IMAGE } from '../fixtures/edge-double/scripted-sandboxes.ts';
import { nodeTransport } from '../fixtures/host-double/node-transport.ts';
import { type SimulatedHost, simulateHosts } from '../fixtures/host-double/simulated-hosts.ts';

const HOSTS = 200;
const CAPACITY = 8;
const SESSIONS = 600;
const AT_ONCE = 20;
const FULL_HOSTS = 20;
const DRAINED_HOSTS = 20;
const LOST_HOSTS = 10;
/** For either kind of host: the simulated ones give it back, the sandboxes of the agents play it. */
const COMMAND = JSON.stringify({ name: 'p', pieces: 1, pieceBytes: 8, everyMs: 0 });

let edge: ScriptedStack;
let hosts: SimulatedHost[];
let agents: ScriptedHost[];
const sessions: SessionClient[] = [];

beforeAll(async () => {
  edge = await ScriptedStack.start();
  agents = [await edge.addHost({ capacity: CAPACITY }), await edge.addHost({ capacity: CAPACITY })];
  hosts = await simulateHosts(HOSTS, nodeTransport(edge.stack.url, edge.stack.keys.edge_origin), {
    images: [{ name: 'python', digest: SCRIPTED_IMAGE }],
    capacity: CAPACITY,
    enrollmentToken: () => edge.stack.operator.createEnrollmentToken(),
  });
}, 600_000);
afterAll(async () => {
  for (const host of hosts) host.stop();
  await edge.stop();
});

/** Those that no host took are left out, and counted. */
async function open(count: number, body: object = {}): Promise<{ opened: SessionClient[]; refused: number }> {
  const opened: SessionClient[] = [];
  let refused = 0;
  for (let begun = 0; begun < count; begun += AT_ONCE) {
    await Promise.all(
      Array.from({ length: Math.min(AT_ONCE, count - begun) }, async () => {
        try {
          opened.push(await edge.api.open({ ...body }));
        } catch (error: unknown) {
          if (!(error instanceof Refused)) throw error;
          refused += 1;
        }
      }),
    );
  }
  return { opened, refused };
}

function simulated(hostId: string | null): SimulatedHost | undefined {
  return hosts.find(({ double }) => double.hostId === hostId);
}

async function order(hostId: string, duty: 'drain' | 'uncordon'): Promise<void> {
  const { url, operatorToken } = edge.stack;
  const headers = { authorization: `Bearer ${operatorToken}` };
  const answer = await fetch(`${url}/v1/hosts/${hostId}/${duty}`, { method: 'POST', headers });
  if (!answer.ok) throw new Error(`${duty} answered ${answer.status}`);
}

function isOneOf(some: readonly SimulatedHost[], hostId: string | null): boolean {
  return some.some(({ double }) => double.hostId === hostId);
}

/** By session: how many hosts were asked for it. */
function tries(): number[] {
  const asked = new Map<string, number>();
  for (const { double } of hosts) {
    for (const { claims } of double.commands) {
      if (claims.act === 'attach') asked.set(claims.sid, (asked.get(claims.sid) ?? 0) + 1);
    }
  }
  return [...asked.values()].toSorted((left, right) => left - right);
}

const allLinked = () =>
  until('all hosts are linked', 120_000, async () =>
    hosts.every(({ isLinked }) => isLinked) && agents.every(({ agent }) => agent.isConnected)
      ? true
      : undefined,
  );

describe('two hundred hosts', () => {
  test('take sessions evenly, and 99 of 100 are asked of three hosts at most', async () => {
    // What the edge knows of these is old: they have no room any more.
    for (const { double } of hosts.slice(0, FULL_HOSTS)) double.refuseAttach = 'host_full';
    const { opened, refused } = await open(SESSIONS);
    sessions.push(...opened);
    const asked = tries();
    console.log(
      `placement: p50 ${asked[asked.length >> 1]}, p99 ${asked[Math.floor(asked.length * 0.99)]}, refused ${refused}`,
    );
    expect(asked[Math.floor(asked.length * 0.99)]).toBeLessThanOrEqual(3);
    expect(refused).toBeLessThan(SESSIONS / 100);
    const fills = hosts.slice(FULL_HOSTS).map(({ double }) => double.sessions.size);
    expect(Math.max(...fills)).toBeLessThanOrEqual(CAPACITY);
    for (const { double } of hosts) double.refuseAttach = undefined;
  }, 300_000);

  test('that are drained get nothing more, and what they have goes on elsewhere', async () => {
    const drained = hosts.slice(-DRAINED_HOSTS);
    for (const { double } of drained) {
      await order(double.hostId, 'drain');
      await double.until(() => double.draining === true);
    }
    const { opened } = await open(100);
    expect(opened.filter(({ opened: { host_id } }) => isOneOf(drained, host_id))).toEqual([]);
    await until('they are empty', 60_000, async () =>
      drained.every(({ double }) => double.sessions.size === 0) ? true : undefined,
    );
    const left = sessions.filter(({ opened: { host_id } }) => isOneOf(drained, host_id));
    expect(left.length).toBeGreaterThan(0);
    const answers = await Promise.all(left.map((session) => session.sh(COMMAND)));
    expect(answers.map(({ status, state_lost }) => [status, state_lost])).toEqual(
      left.map(() => ['succeeded', false]),
    );
    sessions.push(...opened);
    for (const { double } of drained) await order(double.hostId, 'uncordon');
  }, 120_000);

  test('F18 that are all cut off at once come back by themselves, and no session is lost', async () => {
    const cutAtMs = performance.now();
    edge.stack.crashWorkerd();
    await until('the first host noticed', 30_000, async () =>
      hosts.some(({ isLinked }) => !isLinked) ? true : undefined,
    );
    await allLinked();
    const back = hosts
      .map(({ linkedAtMs }) => Math.round((linkedAtMs.at(-1) ?? 0) - cutAtMs))
      .toSorted((a, b) => a - b);
    console.log(
      `back after ${back[0]} to ${back.at(-1)} ms, half of them after ${back[back.length >> 1]} ms`,
    );
    // Full jitter: however many there are, they do not come in the same moment.
    const inOneTenth = back.map(
      (atMs, index) => back.filter((one, at) => at >= index && one < atMs + 100).length,
    );
    expect(Math.max(...inOneTenth)).toBeLessThan(HOSTS / 2);
    const some = sessions.filter((_, index) => index % 20 === 0);
    const answers = await Promise.all(some.map((session) => session.sh(COMMAND)));
    expect(answers.map(({ status, state_lost }) => [status, state_lost])).toEqual(
      answers.map(() => ['succeeded', false]),
    );
  }, 240_000);

  test('F12 of which some are lost: their sessions say so or go on elsewhere, and the hosts return empty', async () => {
    const { opened } = await open(60, { on_host_loss: 'rebuild' });
    const byHost = new Map<SimulatedHost, SessionClient[]>();
    for (const session of opened) {
      const host = simulated(session.opened.host_id);
      if (host !== undefined) byHost.set(host, [...(byHost.get(host) ?? []), session]);
    }
    const { opened: failingOnes } = await open(60);
    // One of them has a session that is to fail; the others have some that are to go on.
    const first = simulated(
      failingOnes.find(({ opened: { host_id } }) => simulated(host_id) !== undefined)?.opened.host_id ?? null,
    );
    if (first === undefined) throw new Error('no session on a simulated host');
    const lost = [...new Set([first, ...byHost.keys()])].slice(0, LOST_HOSTS);
    for (const host of lost) host.leave();
    const failing = failingOnes.find(({ opened: { host_id } }) => isOneOf(lost, host_id));
    if (failing === undefined) throw new Error('no session of a lost host');
    await until('its session has failed', 120_000, async () =>
      (await failing.describe()).error?.code === 'host_lost' ? true : undefined,
    );
    const rebuilt = lost.flatMap((host) => byHost.get(host) ?? []);
    const answers = await Promise.all(rebuilt.map((session) => session.sh(COMMAND)));
    expect(answers.every(({ status, state_lost }) => status === 'succeeded' && state_lost)).toBe(true);
    for (const host of lost) await host.comeBack();
    await allLinked();
    const listedBack = async () =>
      (await edge.stack.operator.hosts()).filter(({ host_id }) => isOneOf(lost, host_id));
    await until('they are back and empty', 60_000, async () =>
      (await listedBack()).every(({ state, sandboxes }) => state === 'connected' && sandboxes === 0)
        ? true
        : undefined,
    );
    // What went on elsewhere stays there, what failed stays failed, and the hosts are as good as any other.
    for (const session of rebuilt) expect(isOneOf(lost, (await session.describe()).host_id)).toBe(false);
    expect((await failing.describe()).state).toBe('error');
    const { opened: later } = await open(100);
    expect(later.some(({ opened: { host_id } }) => isOneOf(lost, host_id))).toBe(true);
  }, 300_000);
});
