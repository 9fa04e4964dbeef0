/** A tool as the MCP server has it: what it lists, and what a call does. */
import type { CallToolResult } from '@modelcontextprotocol/server';
import type { McpTool } from '../formats/mcp.ts';
import type { Exchange } from '../routing/route.ts';
import type { JsonSchema } from '../tools/definition.ts';
import type { OnProgress } from './progress.ts';
import type { TakenCall } from './taken-call.ts';
import type { TaskCreation } from './tasks.ts';

export interface McpCallContext {
  exchange: Exchange<'tenant'>;
  /** Aborted when the client gives the call up. */
  signal: AbortSignal;
  /** Takes the output of the running program, where the client asked for progress. */
  onProgress: OnProgress | undefined;
  /** Hears of the execution as soon as there is one that outlives the connection, where its client may come back for it. */
  onTaken: ((call: TakenCall) => void) | undefined;
  /** Where the client takes a task in place of the result of a call that lasts. */
  tasks: TaskCreation | undefined;
}

type ListedTool = McpTool & { outputSchema?: JsonSchema & { type: 'object' } };

export interface McpServerTool {
  listed: ListedTool;
  /** Where a list says more of it to this caller. */
  listedFor?: (exchange: Exchange<'tenant'>) => Promise<ListedTool>;
  call: (args: Record<string, unknown>, context: McpCallContext) => Promise<CallToolResult>;
}
