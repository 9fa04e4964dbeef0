/** Calls that are made at the edge: of HTTP tools here, of the tools of an MCP server by the object of its source. */
import { sha256Hex } from '../../shared/digest.ts';
import type { Execute, Execution } from '../../shared/execution.ts';
import type { RegisteredTool } from '../../shared/registered-tool.ts';
import type { Env } from '../env.ts';
import { invalid } from '../middleware/body.ts';
import type { StoredTool } from '../objects/catalogue/port.ts';
import { SHARED } from '../objects/catalogue/shared-name.ts';
import type { MadeCall } from '../objects/session/edge-receipts/made.ts';
import { sourceObjectName } from '../objects/source/port.ts';
import { openSecrets } from '../secrets/sealed-secrets.ts';
import type { CallContext } from './check-call.ts';
import {
  type EdgeCallIds,
  type EdgeOutcome,
  edgeEnd,
  edgeExecutionBegun,
  edgeExecutionEnded,
  edgeFailure,
  type OnEdgeProgress,
} from './edge-execution.ts';
import { addressRules } from './http/address.ts';
import { performHttp } from './http/perform.ts';
import { toolRequest } from './http/request.ts';

export interface ResolveContext extends CallContext {
  env: Env;
  receivedMs: number;
}

export interface EdgePerformance {
  timeoutMs: number;
  /** The call as it stands before it is made, and what its receipt will say of that. */
  begun: (ids: EdgeCallIds) => Promise<{ execution: Execution; made: MadeCall }>;
  run: (ids: EdgeCallIds, signal: AbortSignal, onProgress?: OnEdgeProgress) => Promise<Execution>;
}

type TimedCall = Pick<Execute, 'arguments'> & { timeout_ms: number };
type McpTool = Extract<RegisteredTool, { kind: 'mcp' }>;
type Work = (ids: EdgeCallIds, signal: AbortSignal, onProgress?: OnEdgeProgress) => Promise<EdgeOutcome>;

export function httpPerformance(
  context: ResolveContext,
  { stored, call, path }: { stored: StoredTool; call: TimedCall; path: string },
): EdgePerformance {
  const { configuration, principal } = context;
  const { tool, sealedCredentials } = stored;
  if (tool.kind !== 'http') throw new Error('only HTTP tools are requests');
  const built = toolRequest(tool, call.arguments);
  if (!built.ok) throw invalid([{ path: `${path}.${built.name}`, expected: built.expected }]);
  const tenant = tool.source === SHARED ? SHARED : principal.tenant;
  const owner = { tenant, holder: tool.name };
  return edgePerformance(context, { tool, call }, async (_, signal) => {
    const credentials =
      sealedCredentials === null ? {} : await openSecrets(configuration.secretsKey, owner, sealedCredentials);
    const rules = addressRules(configuration);
    return performHttp({ request: built.request, credentials, rules, timeoutMs: call.timeout_ms, signal });
  });
}

export function mcpPerformance(context: ResolveContext, tool: McpTool, call: TimedCall): EdgePerformance {
  const { env, principal } = context;
  const owner = { tenant: principal.tenant, source: tool.source ?? '' };
  const stub = () => env.SOURCE.getByName(sourceObjectName(owner));
  const work: Work = async ({ executionId: callId }, signal, onProgress) => {
    if (signal.aborted) return edgeEnd('interrupted');
    const cancel = () =>
      void stub()
        .cancel(callId)
        .catch(() => undefined);
    signal.addEventListener('abort', cancel, { once: true });
    try {
      const sourceCall = {
        callId,
        remoteName: tool.remote_name,
        inputSchema: tool.input_schema,
        arguments: call.arguments,
        timeoutMs: call.timeout_ms,
      };
      return await stub().call(owner, sourceCall, onProgress);
    } catch {
      return edgeFailure(
        'SourceUnavailable',
        'the source restarted during the call; whether it had an effect is unknown',
      );
    } finally {
      signal.removeEventListener('abort', cancel);
    }
  };
  return edgePerformance(context, { tool, call }, work);
}

/** Of work that the gateway does itself, under the name and version of what it is a call of. */
export function edgePerformance(
  { receivedMs }: Pick<ResolveContext, 'receivedMs'>,
  { tool, call }: { tool: Pick<RegisteredTool, 'name' | 'version'>; call: TimedCall },
  work: Work,
): EdgePerformance {
  const timeoutMs = call.timeout_ms;
  const factsOf = (ids: EdgeCallIds) => ({ ...ids, toolName: tool.name, receivedMs, startedMs: Date.now() });
  return {
    timeoutMs,
    begun: async (ids) => {
      const argsSha256 = await sha256Hex(JSON.stringify(call.arguments));
      const facts = factsOf(ids);
      const made = { toolVersion: tool.version, argsSha256, timeoutMs, startedAtMs: facts.startedMs };
      return { execution: edgeExecutionBegun(facts), made };
    },
    run: async (ids, signal, onProgress) => {
      const facts = factsOf(ids);
      return edgeExecutionEnded(facts, await work(ids, signal, onProgress));
    },
  };
}
