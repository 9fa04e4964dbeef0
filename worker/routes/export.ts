/** A session as one document: what it is, what ran in it, and the receipts with the keys that verify them. */
import * as z from 'zod';
import { utf8 } from '../../shared/encoding.ts';
import { type OwnSession, ownSession } from '../calls/own-session.ts';
import type { Env } from '../env.ts';
import { unwrap } from '../middleware/refusal.ts';
import { SAFE } from '../objects/object-calls.ts';
import { defineRoute } from '../routing/route.ts';
import { receiptsOf } from './receipts-of-session.ts';

const JSON_LINES_MEDIA_TYPE = 'application/jsonl';
const EXECUTIONS_AT_ONCE = 100;
const RECEIPTS_AT_ONCE = 500;

/**
 * Line by line as they are read, so that no more than a page is in memory. An execution that is taken out of the history
 * meanwhile is left out, and one that cannot be read ends the document without its last line.
 */
async function* linesOf(env: Env, session: OwnSession, encoding: 'utf-8' | 'base64'): AsyncGenerator<object> {
  const { caller } = session;
  yield { type: 'session', session: unwrap(await session.call((stub) => stub.describe(caller), SAFE)) };
  let executions = 0;
  let cursor: string | null | undefined;
  while (cursor !== null) {
    const page = { limit: EXECUTIONS_AT_ONCE, cursor, inner: true };
    const listed = unwrap(await session.call((stub) => stub.listExecutions(caller, page), SAFE));
    for (const { execution_id: id } of listed.executions) {
      const found = await session.call((stub) => stub.getExecution(caller, id, encoding), SAFE);
      if (!found.ok && found.code === 'not_found') continue;
      executions += 1;
      yield { type: 'execution', execution: unwrap(found) };
    }
    cursor = listed.next_cursor;
  }
  let receipts = 0;
  let edgeReceipts = 0;
  for (;;) {
    const page = { after: receipts, edge_after: edgeReceipts, limit: RECEIPTS_AT_ONCE };
    const chains = await receiptsOf(env, session, page);
    for (const receipt of chains.receipts) yield { type: 'receipt', receipt };
    for (const receipt of chains.edge_receipts) yield { type: 'edge_receipt', receipt };
    receipts += chains.receipts.length;
    edgeReceipts += chains.edge_receipts.length;
    if (chains.next_after !== null || chains.next_edge_after !== null) continue;
    yield { type: 'keys', keys: chains.keys };
    break;
  }
  yield { type: 'end', executions, receipts, edge_receipts: edgeReceipts };
}

export const exportSession = defineRoute({
  method: 'GET',
  path: '/v1/sessions/{session_id}/export',
  operationId: 'exportSession',
  summary:
    'The session as lines of JSON: `session`, an `execution` each, newest first, a `receipt` or `edge_receipt` each, oldest first, `keys`, and `end` with the counts. A document without `end` is cut off',
  access: { kind: 'tenant', scopes: ['sessions:read'] },
  query: z.strictObject({
    encoding: z.enum(['utf-8', 'base64']).default('utf-8').describe('How `stdout` and `stderr` are given.'),
  }),
  answers: {
    200: {
      description: 'One JSON object a line, with its `type`',
      content: { [JSON_LINES_MEDIA_TYPE]: z.string() },
    },
  },
  errors: ['not_found'],
  handle: async (exchange, { params, query }) => {
    const session = await ownSession(exchange, params.session_id);
    const lines = linesOf(exchange.env, session, query.encoding);
    // The first line is read before anything is answered: a session that is not there is a refusal.
    const first = await lines.next();
    const body = new ReadableStream<Uint8Array>({
      start(controller) {
        if (first.done !== true) controller.enqueue(lineOf(first.value));
      },
      async pull(controller) {
        const next = await lines.next();
        if (next.done === true) controller.close();
        else controller.enqueue(lineOf(next.value));
      },
      async cancel() {
        await lines.return(undefined);
      },
    });
    return new Response(body, {
      headers: {
        'Content-Type': JSON_LINES_MEDIA_TYPE,
        'Cache-Control': 'no-store',
        'Content-Disposition': `attachment; filename="${session.sessionId}.jsonl"`,
      },
    });
  },
});

function lineOf(line: object): Uint8Array {
  return utf8(`${JSON.stringify(line)}\n`);
}
