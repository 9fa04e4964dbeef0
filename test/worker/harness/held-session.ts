/** A session of the tests whose executions do nothing by themselves. */
import type { ExecutionDouble } from '../../fixtures/host-double/execution-double.ts';
import type { HostDouble, Script } from '../../fixtures/host-double/host-double.ts';
import { connectFakeHost } from './fake-host.ts';
import { openSession, type TestSession } from './sessions.ts';

export interface HeldSession {
  host: HostDouble;
  session: TestSession;
  /** Every execution that the host was granted, in their order. */
  running: ExecutionDouble[];
}

const untouched = (): void => undefined;

/** `begin` says what an execution does at once. */
export async function holdSession(begin: Script = untouched): Promise<HeldSession> {
  const running: ExecutionDouble[] = [];
  const host = await connectFakeHost({
    script: (execution, double) => {
      running.push(execution);
      return begin(execution, double);
    },
  });
  return { host, session: await openSession(host), running };
}

/** Everything that the host said of the session is kept: what the object loses now is nothing of that. */
export async function allKept(host: HostDouble, { id }: Pick<TestSession, 'id'>): Promise<void> {
  const double = host.session(id);
  await host.until(() => double.ackedSeq === double.lastSeq);
}
