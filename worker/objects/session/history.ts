/** Keeps the history of a session bounded: the oldest ended executions go. Their receipts stay in the chain. */
import { MAX_EXECUTION_HISTORY } from '../../../shared/limits.ts';
import type { SessionStore } from './store.ts';

/** Pruned in batches, so that most ends cost nothing here. */
const BATCH = 16;

export function pruneHistory(store: SessionStore, lastNumber: number): void {
  if (lastNumber <= MAX_EXECUTION_HISTORY || lastNumber % BATCH !== 0) return;
  const excess = store.executionCount() - MAX_EXECUTION_HISTORY;
  if (excess <= 0) return;
  for (const { n } of store.oldestEnded(excess)) store.deleteExecution(n);
}
