/** The gateway alone: a whole execute with a host that answers at once, against a plain Hono route of the same Worker. */
import type { Installation } from '../host-agent/setup/setup.ts';
import type { Locations } from '../scripts/locations.ts';
import { Api } from './api.ts';
import { startBareRoad } from './bare-road.ts';
import { compare } from './calls.ts';
import { type GatewayStack, startGatewayStack } from './gateway-stack.ts';
import { compareLiveSessions, createSessions } from './live-sessions.ts';
import type { Seen, Target } from './load/plan.ts';
import { runGroup } from './load/run-clients.ts';
import { measureOverload } from './overload.ts';
import { timeInRounds } from './rounds.ts';
import type { Line, Measurement } from './table.ts';

const ROUNDS = 400;
const WARM_UP_ROUNDS = 300;
const CLIENTS = [1, 16, 64];
const SPAN = { warmUpMs: 1_000, durationMs: 3_000 };
const CALL = { code: '1' };
const PLAIN: Target = { method: 'GET', path: '/healthz', body: null };

export async function measureGateway(places: Locations, installation: Installation): Promise<Measurement> {
  const gateway = await startGatewayStack(places, installation);
  const token = await gateway.stack.token();
  const api = new Api(gateway.stack.url, token);
  try {
    const { session_id: first } = await api.createSession();
    const alone = await compareOneClient(api, first);
    const live = await compareLiveSessions(gateway, { token, first, create: () => createSessions(api) });
    const many = await compareClients(gateway, token, live.targets);
    const overload = await measureOverload(gateway, { token, targets: live.targets, peak: many.peak });
    return { lines: [...alone, ...live.lines, ...many.lines, ...overload], notes: [] };
  } finally {
    await api.close();
    await gateway.stop();
  }
}

/** The bare road is no goal: it tells how much of the distance to a plain route is that of any such call. */
async function compareOneClient(api: Api, sessionId: string): Promise<Line[]> {
  const bareRoad = await startBareRoad();
  const [execute, plain, bare] = await timeInRounds(
    [
      {
        name: 'gateway alone, execute',
        run: async () => {
          await api.execute(sessionId, 'python', CALL);
        },
      },
      { name: 'plain Hono route', run: () => api.plain() },
      { name: 'bare road', run: () => bareRoad.call({ tool_name: 'python', arguments: CALL }) },
    ],
    { rounds: ROUNDS, warmUpRounds: WARM_UP_ROUNDS },
  );
  await bareRoad.stop();
  return [compare(execute, plain, { atMost: 3 }), compare(execute, bare, null), compare(bare, plain, null)];
}

/** Each client has a session of its own. What one thread can do more of the one than of the other is no goal, but known. */
async function compareClients(
  { stack }: GatewayStack,
  token: string,
  sessions: readonly Target[],
): Promise<{ lines: Line[]; peak: Seen }> {
  const lines: Line[] = [];
  let peak: Seen | undefined;
  for (const clients of CLIENTS) {
    const run = (name: string, targets: Target[]) =>
      runGroup(
        { url: stack.url, ...SPAN },
        { name, token, targets, clients, perSecond: null, waitsAsTold: true },
      );
    const executed = await run('execute', sessions.slice(0, clients));
    const plain = await run('plain', [PLAIN]);
    if (peak === undefined || executed.okPerS > peak.okPerS) peak = executed;
    lines.push({
      what: `execute, ${clients} clients : plain Hono route`,
      ours: described(executed),
      against: described(plain),
      ratio: (executed.p50Ms ?? Number.NaN) / (plain.p50Ms ?? Number.NaN),
      goal: null,
    });
  }
  if (peak === undefined) throw new Error('no client was measured');
  return { lines, peak };
}

function described({ p50Ms, okPerS }: Seen): string {
  return `p50 ${p50Ms?.toFixed(2) ?? '-'} ms, ${okPerS.toFixed(0)}/s`;
}
