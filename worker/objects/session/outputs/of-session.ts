/** The long outputs of a session, wired to its rows, to R2 and to its tenant's object. */
import type { StreamName } from '../../../../shared/execution.ts';
import type { Configuration } from '../../../configuration.ts';
import { contentKey } from '../../../content/content-key.ts';
import { sealSegment } from '../../../content/sealed-segment.ts';
import type { Env } from '../../../env.ts';
import { StorageBook } from '../../storage-book.ts';
import { outputsHoldId } from '../../tenant/ledger/holds/holds.ts';
import type { SessionRow } from '../rows/session-row.ts';
import type { SessionStore } from '../rows/store.ts';
import { Outputs } from './outputs.ts';
import { chunkName, outputsPrefix } from './place.ts';
import { OutputsStore } from './store.ts';

const LIST_LIMIT = 1_000;

export function outputsOf(parts: {
  context: DurableObjectState;
  env: Env;
  configuration: Configuration;
  row: SessionRow;
  store: SessionStore;
  roomAgain: () => void;
  look: () => void;
}): Outputs {
  const { context, env, configuration, row, store } = parts;
  const book = new StorageBook(env);
  const keys = new Map<string, Promise<CryptoKey>>();
  const keyOf = (executionId: string): Promise<CryptoKey> => {
    const { tenant } = row.record.facts;
    const key =
      keys.get(executionId) ??
      contentKey(configuration.contentRoot, { kind: 'output', tenant, id: executionId });
    keys.clear();
    keys.set(executionId, key);
    return key;
  };
  return new Outputs(new OutputsStore(context.storage), {
    // What ends with its one execution has nobody who could come for it.
    isOn: () => row.maybe?.facts.ephemeral === false,
    transaction: (work) => store.transaction(work),
    put: async (executionId, stream, chunk, bytes) => {
      const name = chunkName(stream, chunk);
      const sealed = await sealSegment(await keyOf(executionId), name, new Uint8Array(bytes));
      await env.CONTENT.put(`${outputsPrefix(row.record.facts, executionId)}${name}`, sealed);
    },
    removeSome: async (executionId) => {
      const prefix = outputsPrefix(row.record.facts, executionId ?? undefined);
      const { objects, truncated } = await env.CONTENT.list({ prefix, limit: LIST_LIMIT });
      if (objects.length > 0) await env.CONTENT.delete(objects.map(({ key }) => key));
      return !truncated;
    },
    hold: (bytes, isStored) => {
      const { tenant, subject, sessionId } = row.record.facts;
      return book.hold(tenant, { id: outputsHoldId(sessionId), subject, bytes, sessionId, isStored });
    },
    cut: (n: number, stored: Record<StreamName, number>) => store.updateExecution(n, { stored }),
    inBackground: (work) => context.waitUntil(work),
    roomAgain: parts.roomAgain,
    look: parts.look,
  });
}
