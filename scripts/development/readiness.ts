/** When a stack may be used. */
import { SetupFailure } from '../../host-agent/setup/failure.ts';
import type { OperatorClient, OperatorHost } from './operator-client.ts';
import type { SupervisedChild } from './supervised-child.ts';
import { waitUntil } from './wait-until.ts';

const READY_TIMEOUT_MS = 60_000;
/** A bound on hanging, not on speed: a machine with more to do than it can gives the children little of itself. */
const BACK_TIMEOUT_MS = 180_000;

/**
 * The host that was heard of since both its agent's process and the edge's started: an edge that was killed comes
 * back with a host that it still takes for connected.
 */
export async function connectedHost(
  operator: OperatorClient,
  agent: SupervisedChild,
  edgeUpSinceMs: number,
): Promise<string | undefined> {
  const sinceMs = Math.max(agent.startedAtMs, edgeUpSinceMs);
  const hosts = agent.pid === undefined ? [] : await operator.hosts().catch(() => []);
  const isConnected = (host: OperatorHost): boolean =>
    host.state === 'connected' && Date.parse(host.last_seen_at ?? '') >= sinceMs;
  return hosts.find(isConnected)?.host_id;
}

/** Fails when the time is up, with how far everything has come. */
export async function untilBack(
  probe: () => Promise<unknown>,
  whereItStands: () => Promise<string>,
): Promise<void> {
  const answer = async (): Promise<true | undefined> => ((await probe()) === undefined ? undefined : true);
  const isBack = await waitUntil(answer, { timeoutMs: BACK_TIMEOUT_MS });
  if (isBack !== undefined) return;
  throw new SetupFailure(
    `the stack did not come back in ${BACK_TIMEOUT_MS / 1000} s: ${await whereItStands()}`,
  );
}

/** What the edge says of its hosts, and how long each child has run and what it said last. */
export async function standing(
  operator: OperatorClient,
  children: readonly SupervisedChild[],
): Promise<string> {
  const stood = children.map(standingOf);
  const hosts = await operator.hosts().then(
    (listed) => listed.map(({ state, last_seen_at }) => `host ${state}, seen ${last_seen_at ?? 'never'}`),
    (error: unknown) => [`the edge does not answer: ${error instanceof Error ? error.message : 'unknown'}`],
  );
  return [...hosts, ...stood].join('; ');
}

function standingOf(child: SupervisedChild): string {
  const { name, pid, startedAtMs } = child;
  const since = new Date(startedAtMs).toISOString();
  const how = pid === undefined ? `does not run, was started ${since}` : `runs as ${pid} since ${since}`;
  return `${name} ${how}, said: ${child.lastLogLine().slice(0, 300)}`;
}

/** Fails as soon as the child dies or the time is up, with the last thing it said. */
export async function untilReady<T>(
  name: string,
  child: SupervisedChild,
  probe: () => Promise<T | undefined> | T | undefined,
): Promise<T> {
  let died: string | undefined;
  void child.exited.then((reason) => {
    died = reason;
  });
  const end = await waitUntil<{ found: T } | { died: string }>(
    async () => {
      const found = await probe();
      if (found !== undefined) return { found };
      return died === undefined ? undefined : { died };
    },
    { timeoutMs: READY_TIMEOUT_MS },
  );
  if (end !== undefined && 'found' in end) return end.found;
  const reason = end === undefined ? `not ready after ${READY_TIMEOUT_MS / 1000} s` : end.died;
  throw new SetupFailure(`the ${name} did not start (${reason}): ${child.lastLogLine()}`);
}
