/** Five times what the gateway can do: what it still does, how long the accepted wait, and what a quiet tenant notices. */
import { Api } from './api.ts';
import type { GatewayStack } from './gateway-stack.ts';
import { executeIn } from './live-sessions.ts';
import type { Group, Seen, Target } from './load/plan.ts';
import { runClients } from './load/run-clients.ts';
import type { Line } from './table.ts';

const TIMES = 5;
/** As many as saturate it. */
const CLIENTS = 64;
/** Until the gateway has noticed, which takes longer than a burst. */
const SPAN = { warmUpMs: 5_000, durationMs: 6_000 };
const QUIET_PER_S = 5;
/** Answered with the least that a Worker can answer with: refusing costs as much. */
const PLAIN: Target = { method: 'GET', path: '/healthz', body: null };
/** The calls of a session wait for one another: each is to wait for the gateway alone. */
const QUIET_SESSIONS = 16;

export async function measureOverload(
  { stack }: GatewayStack,
  { token, targets, peak }: { token: string; targets: readonly Target[]; peak: Seen },
): Promise<Line[]> {
  const quietToken = await stack.token({ claims: { tenant: 'quiet' } });
  const api = new Api(stack.url, quietToken);
  const quietSessions = await Promise.all(Array.from({ length: QUIET_SESSIONS }, () => api.createSession()));
  await api.close();
  const flood = {
    name: 'flood',
    token,
    targets: targets.slice(0, TIMES * CLIENTS),
    clients: TIMES * CLIENTS,
  };
  const quiet: Group = {
    name: 'quiet',
    token: quietToken,
    targets: quietSessions.map(({ session_id }) => executeIn(session_id)),
    clients: QUIET_SESSIONS,
    perSecond: QUIET_PER_S,
    waitsAsTold: false,
  };
  const run = async (group: Omit<Group, keyof typeof flood>): Promise<[Seen, Seen]> => {
    const [seen, beside] = await runClients({
      url: stack.url,
      ...SPAN,
      groups: [{ ...flood, ...group }, quiet],
    });
    if (seen === undefined || beside === undefined) throw new Error('the clients said nothing');
    return [seen, beside];
  };
  const [patient, besidePatient] = await run({ perSecond: null, waitsAsTold: true });
  const [deaf, besideDeaf] = await run({ perSecond: TIMES * peak.okPerS, waitsAsTold: false });
  const [most] = await runClients({
    url: stack.url,
    ...SPAN,
    groups: [
      { ...flood, clients: CLIENTS, perSecond: null, waitsAsTold: true },
      { ...flood, name: 'plain', targets: [PLAIN], perSecond: (TIMES - 1) * peak.okPerS, waitsAsTold: false },
    ],
  });
  if (most === undefined) throw new Error('the clients said nothing');
  return [
    goodput(`goodput with ${TIMES} times the clients, who wait as told : peak`, patient, peak),
    goodput(`goodput at ${TIMES} times the rate, whatever is answered : peak`, deaf, peak),
    goodput(`the same : what is done beside plain answers to the rest`, deaf, most),
    served(`a quiet tenant beside the former`, besidePatient),
    served(`a quiet tenant beside the latter`, besideDeaf),
  ];
}

function goodput(what: string, seen: Seen, peak: Seen): Line {
  return {
    what,
    ours: `${described(seen)}, ${seen.shed} shed`,
    against: described(peak),
    ratio: seen.okPerS / peak.okPerS,
    goal: { atLeast: 0.9 },
  };
}

/** The part of its requests that it got an answer to. */
function served(what: string, seen: Seen): Line {
  return {
    what: `${what} : all of its requests`,
    ours: `${seen.ok} of them, p50 ${seen.p50Ms?.toFixed(0) ?? '-'} ms`,
    against: `${seen.sent}`,
    ratio: seen.ok / seen.sent,
    goal: { atLeast: 0.9 },
  };
}

function described({ p50Ms, okPerS }: Seen): string {
  return `${okPerS.toFixed(0)}/s, p50 ${p50Ms?.toFixed(0) ?? '-'} ms`;
}
