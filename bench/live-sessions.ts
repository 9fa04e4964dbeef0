/** What a call costs while a thousand sessions are live, against what it costs while one is. */
import type { Api } from './api.ts';
import type { GatewayStack } from './gateway-stack.ts';
import { untilIdle } from './idle.ts';
import type { Target } from './load/plan.ts';
import { runGroup } from './load/run-clients.ts';
import type { Line } from './table.ts';

export const LIVE_SESSIONS = 1_000;
const AT_ONCE = 16;
const SPAN = { warmUpMs: 1_000, durationMs: 3_000 };
/** So few that each was called in the warm-up, and is called again before its object sleeps. */
const AWAKE_SESSIONS = 100;
const BODY = JSON.stringify({ tool_name: 'python', arguments: { code: '1' } });

export function executeIn(sessionId: string): Target {
  return { method: 'POST', path: `/v1/sessions/${sessionId}/execute`, body: BODY };
}

/** All but the one that is there. */
export async function createSessions(api: Api): Promise<string[]> {
  const created: string[] = [];
  while (created.length < LIVE_SESSIONS - 1) {
    const count = Math.min(AT_ONCE, LIVE_SESSIONS - 1 - created.length);
    const batch = await Promise.all(Array.from({ length: count }, () => api.createSession()));
    created.push(...batch.map(({ session_id }) => session_id));
  }
  return created;
}

export async function compareLiveSessions(
  { stack }: GatewayStack,
  about: { token: string; first: string; create: () => Promise<string[]> },
): Promise<{ lines: Line[]; targets: Target[] }> {
  const first = executeIn(about.first);
  const p50Ms = async (targets: Target[]): Promise<number> => {
    const group = { name: 'execute', token: about.token, targets, perSecond: null, waitsAsTold: true };
    const seen = await runGroup({ url: stack.url, ...SPAN }, { ...group, clients: 1, rotates: true });
    return seen.p50Ms ?? Number.NaN;
  };
  const alone = await p50Ms([first]);
  const targets = [first, ...(await about.create()).map(executeIn)];
  // Sessions that live, not those that are being made: what they leave to do for half a minute is not in the rows.
  const workerdPid = stack.workerdPid();
  if (workerdPid !== undefined) await untilIdle(workerdPid);
  const same = await p50Ms([first]);
  const awake = await p50Ms(targets.slice(0, AWAKE_SESSIONS));
  const spread = await p50Ms(targets);
  const line = (what: string, ours: number): Line => ({
    what: `${what} : the only session`,
    ours: `p50 ${ours.toFixed(2)} ms`,
    against: `p50 ${alone.toFixed(2)} ms`,
    ratio: ours / alone,
    goal: { atMost: 1.2 },
  });
  return {
    lines: [
      line(`execute in one of ${LIVE_SESSIONS} live sessions`, same),
      line(`execute in ${AWAKE_SESSIONS} of ${LIVE_SESSIONS} live sessions in turn`, awake),
      line(`first execute in each of ${LIVE_SESSIONS} live sessions`, spread),
    ],
    targets,
  };
}
