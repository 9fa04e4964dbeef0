/** The MCP server of one request: what it lists and calls is the caller's, whichever era the client speaks. */
import {
  type CallToolResult,
  ProtocolError,
  ProtocolErrorCode,
  Server,
  type ServerContext,
} from '@modelcontextprotocol/server';
import type { RegisteredTool } from '../../shared/registered-tool.ts';
import { exportedNames, MCP_NAMES } from '../formats/names.ts';
import { Refusal, unwrap } from '../middleware/refusal.ts';
import { catalogueCalls, SAFE } from '../objects/object-calls.ts';
import { programLanguages } from '../programs/code-tool.ts';
import type { Exchange } from '../routing/route.ts';
import { callableTools } from '../tools/catalogue.ts';
import { hasToolScope, mayUse, rightsOf } from '../tools/policy.ts';
import { registeredGuard, shownTo } from '../tools/registered.ts';
import { storedTools } from '../tools/resolve-call.ts';
import { APPROVAL_TOOLS_SCOPE, approvalTools } from './approval-tools.ts';
import type { CallCancellation, CancellableCall } from './cancellation.ts';
import { discoveryTools } from './discovery-tools.ts';
import { executeTool } from './execute-tools.ts';
import { mergedPage, nameInCursor } from './pages.ts';
import { programTools } from './program-tools.ts';
import type { Progress } from './progress.ts';
import { failureResult } from './result.ts';
import type { ResumableStream } from './resumable-stream.ts';
import { SESSION_COMMANDS, sessionCommands } from './session-commands.ts';
import { SESSION_TOOLS_SCOPE, sessionTools } from './session-tools.ts';
import type { TakenCall } from './taken-call.ts';
import { serveTasks, taskCreation } from './tasks.ts';
import type { McpCallContext, McpServerTool } from './tool.ts';
import { unexpected } from './unexpected.ts';

const IDENTITY = { name: 'sandgate', title: 'Sandgate', version: '1' };
const PAGE_SIZE = 100;
/** Schemas may be large: a page stays under a megabyte. */
const MAX_PAGE_CHARACTERS = 512 * 1024;
const MAX_NAME_CHARACTERS = 128;
const INSTRUCTIONS =
  'Isolated computers. create_session gives one whose files, variables and processes live on; pass its session_id to ' +
  'the other tools: execute_code, run_command, file. Without session_id a call has a computer of its own, which is gone afterwards. search_tools finds ' +
  'further tools by what they do; call_tool calls them. code runs a program in which they are functions.';

export interface ServerOptions {
  /** For a client that cancels by messages; one of the newer era closes its stream. */
  cancellation?: CallCancellation | undefined;
  /** For a client that may come back for the answer of its one call. */
  stream?: ResumableStream | undefined;
  /** Whether other answers share the stream. */
  isBatch: boolean;
}

export async function serverFor(
  exchange: Exchange<'tenant'>,
  { cancellation, stream, isBatch }: ServerOptions,
): Promise<Server> {
  const { tools, unlisted } = toolsAtHand(exchange);
  const server = new Server(IDENTITY, { capabilities: { tools: {} }, instructions: INSTRUCTIONS });
  const isModern = cancellation === undefined;
  if (isModern) serveTasks(server, exchange);
  server.setRequestHandler('tools/list', async ({ params }) => {
    const after = params?.cursor === undefined ? null : nameInCursor(params.cursor);
    if (after === undefined) throw invalidParams('the cursor is not one of this list');
    const page = await listedTools(exchange, tools, after);
    const listed = await Promise.all(
      page.entries.map((tool) => tool.listedFor?.(exchange) ?? Promise.resolve(tool.listed)),
    );
    return { tools: listed, ...(page.nextCursor === undefined ? {} : { nextCursor: page.nextCursor }) };
  });
  server.setRequestHandler('tools/call', async ({ params }, context) => {
    const tool =
      [...tools, ...unlisted].find(({ listed }) => listed.name === params.name) ??
      (await registeredTool(exchange, params.name));
    if (tool === undefined) throw unknownTool(params.name, tools);
    const { id, signal } = context.mcpReq;
    const call = cancellation?.enter(id) ?? { callId: '', signal, leave: async () => {} };
    const tasks = isModern ? taskCreation(server, exchange) : undefined;
    const answered = answer(tool, params.arguments ?? {}, { exchange, context, call, stream, tasks });
    // A client that goes away must not stop what stops its call.
    exchange.waitUntil(answered);
    const result = await answered;
    // A cancelled request has no answer; a client that closed its stream reads none.
    if (call.signal.aborted && !isBatch) await server.close();
    return result;
  });
  return server;
}

/** Those that need no catalogue, in the order of their names, and those that are called by their names all the same. */
function toolsAtHand({ principal }: Exchange<'tenant'>): {
  tools: McpServerTool[];
  unlisted: McpServerTool[];
} {
  const callable = callableTools(principal);
  const mayCreate = principal.scopes.has(SESSION_TOOLS_SCOPE);
  const executing = sessionCommands(callable, { mayCreate });
  const mayCall = hasToolScope(principal.scopes);
  const mayRunPrograms = programLanguages(principal).length > 0;
  const tools = [
    ...(mayCreate ? sessionTools : []),
    ...(mayCall ? discoveryTools : []),
    ...(principal.scopes.has(APPROVAL_TOOLS_SCOPE) ? approvalTools : []),
    ...(mayRunPrograms ? programTools : []),
    ...executing.listed,
  ].toSorted((a, b) => (a.listed.name < b.listed.name ? -1 : 1));
  return { tools, unlisted: executing.unlisted };
}

async function listedTools(
  exchange: Exchange<'tenant'>,
  atHand: readonly McpServerTool[],
  after: string | null,
) {
  const { env, principal } = exchange;
  const filter = { ...rightsOf(principal), order: 'mcp_name' as const };
  const bounds = { after, limit: PAGE_SIZE, maxCharacters: MAX_PAGE_CHARACTERS };
  const listed = unwrap(
    await catalogueCalls(env, principal.tenant)((stub) => stub.list({ ...filter, ...bounds }), SAFE),
  );
  const all = await Promise.all(listed.tools.map((tool) => registered(exchange, tool)));
  const entries = all.filter((tool) => !SESSION_COMMANDS.has(tool.listed.name));
  const rest = after === null ? atHand : atHand.filter((tool) => tool.listed.name > after);
  return mergedPage(rest, { entries, next: listed.next }, (tool) => tool.listed.name);
}

/** By the name that it has here; undefined for one that this caller may not use. */
async function registeredTool(
  exchange: Exchange<'tenant'>,
  name: string,
): Promise<McpServerTool | undefined> {
  if (SESSION_COMMANDS.has(name)) return undefined;
  const [stored] = await storedTools(exchange, [name], 'mcp_name');
  if (stored === undefined) return undefined;
  const { tool } = stored;
  return mayUse(exchange.principal, registeredGuard(tool)) ? registered(exchange, tool) : undefined;
}

async function registered({ principal }: Exchange<'tenant'>, tool: RegisteredTool): Promise<McpServerTool> {
  const names = await exportedNames([tool.name], MCP_NAMES);
  const mayCreate = principal.scopes.has(SESSION_TOOLS_SCOPE);
  return executeTool(shownTo(principal, tool), names.get(tool.name) ?? tool.name, { mayCreate });
}

async function answer(
  tool: McpServerTool,
  args: Record<string, unknown>,
  {
    exchange,
    context,
    call: { callId, signal, leave },
    stream,
    tasks,
  }: Pick<McpCallContext, 'exchange' | 'tasks'> & {
    context: ServerContext;
    call: CancellableCall;
    stream: ResumableStream | undefined;
  },
): Promise<CallToolResult> {
  const { id: requestId, _meta: { progressToken } = {} } = context.mcpReq;
  const onTaken = (taken: TakenCall) => stream?.taken(taken, { requestId, progressToken, callId });
  try {
    return await tool.call(args, {
      exchange,
      signal,
      onProgress: progressOf(context, stream),
      onTaken: stream === undefined ? undefined : onTaken,
      tasks,
    });
  } catch (error: unknown) {
    return failureResult(error instanceof Refusal ? error.failure : unexpected(error, exchange.requestId));
  } finally {
    await leave();
  }
}

function progressOf({ mcpReq }: ServerContext, stream: ResumableStream | undefined) {
  const progressToken = mcpReq._meta?.progressToken;
  if (progressToken === undefined) return undefined;
  return (progress: Progress, cursor?: string) => {
    stream?.progressed(progress, cursor);
    // A stream that nobody reads any more takes none.
    mcpReq
      .notify({ method: 'notifications/progress', params: { progressToken, ...progress } })
      .catch(() => undefined);
  };
}

function unknownTool(name: string, tools: readonly McpServerTool[]): Error {
  const names = tools.map(({ listed }) => listed.name).join(', ');
  const given = JSON.stringify(name.slice(0, MAX_NAME_CHARACTERS));
  return invalidParams(`no tool ${given}; you may call: ${names}`);
}

function invalidParams(message: string): Error {
  return new ProtocolError(ProtocolErrorCode.InvalidParams, message);
}
