/** One call of a tool for an adapter: the same check, the same queue and the same receipt as by any other road. */
import { failure, type Outcome } from '../../shared/errors.ts';
import type { Execution } from '../../shared/execution.ts';
import { DEFAULT_TIMEOUT_MS } from '../../shared/limits.ts';
import { acceptCall, attendedCall, awaitCall } from '../calls/attended-call.ts';
import type { OwnSession } from '../calls/own-session.ts';
import type { Exchange } from '../routing/route.ts';
import { isProgram, prepareCalls } from '../tool-calls/prepare.ts';
import { toolNotFound } from '../tools/check-call.ts';

export interface AdapterCall {
  /** The tool's own name, or the one that it was declared under. */
  name: string;
  arguments: Record<string, unknown>;
  timeoutMs?: number;
}

export async function runCall(
  exchange: Exchange<'tenant'>,
  session: OwnSession,
  call: AdapterCall,
): Promise<Outcome<Execution>> {
  const requested = { id: 'call', name: call.name, arguments: call.arguments };
  const [prepared] = await prepareCalls(exchange, [requested], call.timeoutMs ?? DEFAULT_TIMEOUT_MS);
  if (prepared === undefined) return failure('internal', 'the call was lost');
  if (!prepared.call.ok) return prepared.call;
  const { value } = prepared.call;
  // A program is run by messages and over MCP, whose answers can say what it waits for.
  if (isProgram(value)) return toolNotFound(exchange.principal, call.name, '').failure;
  const attended = attendedCall(exchange, session, { body: value.call, idempotency: null, resolved: value });
  const accepted = await acceptCall(attended);
  if (!accepted.ok) return accepted;
  const ended = awaitCall(attended);
  // A client that goes away does not keep the end of a call at the edge from being written.
  exchange.waitUntil(ended.catch(() => undefined));
  return ended;
}

/** Their clients send null for what they leave out. */
export function withoutNulls(args: Readonly<Record<string, unknown>>): Record<string, unknown> {
  return Object.fromEntries(Object.entries(args).filter(([, value]) => value !== null));
}
