/** The account of a session, wired to its rows and to its tenant's object. */
import type { Env } from '../../../env.ts';
import { callObject } from '../../../middleware/call-object.ts';
import { logWarning, messageOf } from '../../log.ts';
import type { AccountTerms } from '../../tenant/ledger/account.ts';
import type { Executions } from '../executions/executions.ts';
import type { SessionRow } from '../rows/session-row.ts';
import { Account } from './account.ts';
import { AccountStore } from './store.ts';

export function accountOf(parts: {
  context: DurableObjectState;
  env: Env;
  row: SessionRow;
  executions: () => Executions;
  /** Bytes that are kept of what ran, whoever ran it. */
  contentBytes: () => number;
  dueAt: (atMs: number) => void;
  heard: (terms: AccountTerms) => void;
}): Account {
  const { context, env, row, executions } = parts;
  return new Account(new AccountStore(context.storage), {
    facts: () => {
      const facts = row.maybe?.facts;
      return facts === undefined
        ? null
        : { sessionId: facts.sessionId, subject: facts.subject, cpus: facts.limits.cpus };
    },
    openTimeoutsMs: () => executions().open.map(({ timeoutMs }) => timeoutMs),
    isSuspended: () => row.maybe?.state === 'suspended',
    storageBytes: parts.contentBytes,
    // How a session stands is absolute: telling it twice is telling it once.
    tell: (account, wanted) =>
      callObject(() => env.TENANT.getByName(row.record.facts.tenant).account(account, wanted), {
        safe: true,
      }),
    inBackground: (work) =>
      context.waitUntil(
        work.catch((error: unknown) => logWarning('usage_not_reported', { detail: messageOf(error) })),
      ),
    dueAt: parts.dueAt,
    heard: parts.heard,
  });
}
