/** The programs of a session, wired to its other parts. */
import type { Outcome } from '../../../../shared/errors.ts';
import type { Execution } from '../../../../shared/execution.ts';
import type { Configuration } from '../../../configuration.ts';
import type { Env } from '../../../env.ts';
import type { EdgeReceipts } from '../edge-receipts/edge-receipts.ts';
import type { EventLogs } from '../event-logs/logs.ts';
import type { SessionEvents } from '../events/events.ts';
import type { ExecuteInput } from '../port.ts';
import type { ExecutionRecord } from '../rows/records.ts';
import type { SessionParts } from '../session-parts.ts';
import { Programs } from './programs.ts';

export function programsOf(
  session: SessionParts,
  wired: {
    context: DurableObjectState;
    env: Env;
    configuration: Configuration;
    logs: EventLogs;
    receipts: EdgeReceipts;
    events: SessionEvents;
    stop: (record: ExecutionRecord) => void;
    runInner: (input: ExecuteInput) => Promise<Outcome<Execution>>;
  },
): Programs {
  const { row, executions, deadlines } = session;
  return new Programs({
    ...wired,
    row,
    executions,
    send: (record, payload) => session.dispatch.answerCall(record, payload),
    port: {
      clockChanged: (record) => {
        deadlines.disarm(record);
        if (executions.isAwaited(record)) deadlines.arm(record);
        session.look();
      },
      look: () => session.look(),
      stop: wired.stop,
      // One that is taken back when it fails is alone; a host without lanes runs one thing after the other.
      runsBeside: ({ rollback }) => !rollback && (session.link.hasLanes || !session.link.isUp),
      runInner: wired.runInner,
      stopInner: (executionId) => {
        const record = executions.open.find((open) => open.executionId === executionId);
        if (record !== undefined) wired.stop(record);
      },
      answered: () => void session.waking.wake(),
      asked: (record, call) =>
        wired.events.record({
          type: 'program.waiting',
          data: { program_id: record.executionId, call },
        }),
    },
  });
}
