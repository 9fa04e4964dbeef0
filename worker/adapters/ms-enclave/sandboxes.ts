/** The caller's sandboxes: made, found and asked. */
import { failure, type Outcome, success } from '../../../shared/errors.ts';
import type { CreateSession, Session } from '../../../shared/session.ts';
import { placeAndCreate, reserveSession } from '../../calls/create-session.ts';
import { type OwnSession, ownSession } from '../../calls/own-session.ts';
import { checkValue } from '../../middleware/body.ts';
import { Refusal, unwrap } from '../../middleware/refusal.ts';
import { SAFE, tenantCalls } from '../../objects/object-calls.ts';
import type { Exchange } from '../../routing/route.ts';
import type { ToolDefinition } from '../../tools/definition.ts';
import { mayUse } from '../../tools/policy.ts';
import { registeredGuard, shownTo } from '../../tools/registered.ts';
import { storedTools } from '../../tools/resolve-call.ts';
import { type AdapterCall, runCall, withoutNulls } from '../run-call.ts';
import { METADATA } from './configuration.ts';
import { refusedResult, resultOf, type ToolResult } from './result.ts';
import { enabledTools, type KnownSession } from './sandbox-info.ts';
import { ENCLAVE_TOOLS } from './tools.ts';

export interface Sandbox {
  session: OwnSession;
  known: Session;
}

/** What a list shows; those beyond are found by their ids. */
const MAX_LISTED = 1_000;
const PAGE = 100;

export async function makeSandbox(
  exchange: Exchange<'tenant'>,
  request: CreateSession,
): Promise<Outcome<Session>> {
  const reserved = await reserveSession(exchange, null);
  return placeAndCreate(exchange, { ...reserved, request, ephemeral: false });
}

export async function sandboxOf(exchange: Exchange<'tenant'>, id: string): Promise<Sandbox> {
  const session = await ownSession(exchange, id);
  return { session, known: unwrap(await session.call((stub) => stub.describe(session.caller), SAFE)) };
}

export async function listedSandboxes(exchange: Exchange<'tenant'>): Promise<KnownSession[]> {
  const { tenant, subject } = exchange.principal;
  const calls = tenantCalls(exchange.env, tenant);
  const listed: KnownSession[] = [];
  let cursor: string | undefined;
  do {
    const input = { subject, limit: PAGE, cursor };
    const page = unwrap(await calls((stub) => stub.listSessions(input), SAFE));
    listed.push(...page.sessions);
    cursor = page.next_cursor ?? undefined;
  } while (cursor !== undefined && listed.length < MAX_LISTED);
  return listed;
}

/** Registered tools that the sandbox was configured with, of which the caller may call. */
export async function registeredTools(
  exchange: Exchange<'tenant'>,
  session: Pick<KnownSession, 'metadata'>,
): Promise<ToolDefinition[]> {
  const names = (enabledTools(session) ?? []).filter(
    (name) => !ENCLAVE_TOOLS.some((tool) => tool.name === name),
  );
  const stored = await storedTools(exchange, names, 'name');
  return stored
    .filter(({ tool }) => mayUse(exchange.principal, registeredGuard(tool)))
    .map(({ tool }) => shownTo(exchange.principal, tool));
}

export interface ToolRequest {
  name: string;
  parameters: Record<string, unknown>;
  timeoutS: number | null;
}

export async function executeTool(
  exchange: Exchange<'tenant'>,
  { session, known }: Sandbox,
  { name, parameters, timeoutS }: ToolRequest,
): Promise<Outcome<ToolResult>> {
  if (enabledTools(known)?.includes(name) === false) {
    throw new Refusal(failure('tool_not_found', `Tool ${name} is not available`));
  }
  const tool = ENCLAVE_TOOLS.find((one) => one.name === name);
  const args =
    tool === undefined ? parameters : checkValue(withoutNulls(parameters), tool.arguments, 'body.parameters');
  const call = tool === undefined ? { name, arguments: parameters } : tool.callOf(args);
  const nowMs = Date.now();
  if (typeof call === 'string') return success(refusedResult(name, call, nowMs));
  const executed = await runCall(exchange, session, withTimeout(call, timeoutS, known));
  if (!executed.ok) return executed;
  return success(resultOf(name, executed.value, { tool, args, nowMs }));
}

/** Of the call, else of the request, else of the sandbox. */
function withTimeout(call: AdapterCall, timeoutS: number | null, { metadata }: Session): AdapterCall {
  const ofSandbox = metadata[METADATA.timeout];
  const seconds = timeoutS ?? (ofSandbox === undefined ? null : Number(ofSandbox));
  if (call.timeoutMs !== undefined || seconds === null) return call;
  return { ...call, timeoutMs: Math.max(1, Math.round(seconds * 1_000)) };
}
