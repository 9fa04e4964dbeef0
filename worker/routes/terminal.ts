/** A terminal in a session, over a WebSocket. */
import * as z from 'zod';
import { failure, success } from '../../shared/errors.ts';
import { newId } from '../../shared/ids.ts';
import { TerminalIdSchema } from '../../shared/program.ts';
import type { TransferRequest } from '../../shared/transfer.ts';
import { type OwnSession, ownSession } from '../calls/own-session.ts';
import { asciiJson, failureIn } from '../calls/session-stream.ts';
import { TRANSFER_ERRORS } from '../calls/session-transfer.ts';
import { invalid } from '../middleware/body.ts';
import { unwrap } from '../middleware/refusal.ts';
import { offeredSubprotocols, TERMINAL_SUBPROTOCOL } from '../middleware/subprotocol.ts';
import { UNSAFE } from '../objects/object-calls.ts';
import { FILE_HEADERS, INTERNAL_HEADERS, INTERNAL_PATHS } from '../objects/session/port.ts';
import { defineRoute } from '../routing/route.ts';
import { requireWholly } from '../tools/held-call.ts';

const Side = z.coerce.number().int().min(1).max(4_096).optional();

export const terminal = defineRoute({
  method: 'GET',
  path: '/v1/sessions/{session_id}/terminal',
  operationId: 'openTerminal',
  summary:
    'A terminal with bash, as a WebSocket: binary messages are bytes, text messages are JSON (`resize`, `signal`, `taken` from the client; `ready`, `gap`, `exit` to it). With `terminal_id`, one that is there',
  access: { kind: 'tenant', scopes: ['tools:shell'], webSocket: true },
  query: z.strictObject({
    terminal_id: TerminalIdSchema.optional().describe('Attach to this one; without it, a new one.'),
    after: z.coerce
      .number()
      .int()
      .min(0)
      .optional()
      .describe('Bytes of output that the client has; what is kept after them is sent first.'),
    rows: Side.describe('Size of the window; 24 by 80 without it.'),
    cols: Side,
  }),
  headers: {
    Upgrade: '`websocket`.',
    'Sec-WebSocket-Protocol':
      'From a page, `sandgate.terminal` and `sandgate.bearer.` with the token, which then needs no `Authorization`.',
  },
  answers: { 101: { description: 'The socket' } },
  errors: [...TRANSFER_ERRORS, 'too_many_programs', 'program_not_started'],
  handle: async (exchange, { params, query }) => {
    const { headers } = exchange.request;
    const session = await ownSession(exchange, params.session_id);
    requireWholly(exchange.principal, 'shell');
    if (headers.get('Upgrade')?.toLowerCase() !== 'websocket')
      throw invalid([{ path: 'header.Upgrade', expected: 'websocket' }]);
    const subprotocol = subprotocolOf(headers);
    const { terminal_id: known, after, rows, cols } = query;
    const socket = await open(session, {
      operation: 'terminal_attach',
      terminal_id: known ?? newId('trm'),
      create: known === undefined,
      size: rows === undefined && cols === undefined ? null : { rows: rows ?? 24, cols: cols ?? 80 },
      after: after ?? null,
    });
    return new Response(null, {
      status: 101,
      webSocket: socket,
      headers: {
        'sec-websocket-extensions': 'none',
        ...(subprotocol === undefined ? {} : { 'Sec-WebSocket-Protocol': subprotocol }),
      },
    });
  },
});

/** A browser wants one of those that it offered; a token is never sent back. */
function subprotocolOf(headers: Headers): string | undefined {
  const offered = offeredSubprotocols(headers);
  if (offered.includes(TERMINAL_SUBPROTOCOL)) return TERMINAL_SUBPROTOCOL;
  if (offered.length === 0) return undefined;
  throw invalid([{ path: 'header.Sec-WebSocket-Protocol', expected: `${TERMINAL_SUBPROTOCOL} among them` }]);
}

async function open(session: OwnSession, request: TransferRequest): Promise<WebSocket> {
  const opened = await session.call(async (stub) => {
    const headers = {
      Upgrade: 'websocket',
      [INTERNAL_HEADERS.caller]: asciiJson(session.caller),
      [FILE_HEADERS.request]: asciiJson(request),
    };
    const response = await stub.fetch(new Request(`https://session${INTERNAL_PATHS.terminal}`, { headers }));
    if (response.webSocket !== null) return success(response.webSocket);
    return response.status < 400 ? failure('internal', 'the session gave no socket') : failureIn(response);
  }, UNSAFE);
  return unwrap(opened);
}
