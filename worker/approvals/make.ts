/** Makes a call that was approved, as who asked for it: every check is made again, by what holds now. */
import type { SealedCallback } from '../../shared/callback.ts';
import { failure, type Outcome, success } from '../../shared/errors.ts';
import { ExecuteSchema } from '../../shared/execution.ts';
import type { Configuration } from '../configuration.ts';
import { requireUnbarred } from '../engine/owner.ts';
import type { Env } from '../env.ts';
import type { TenantPrincipal } from '../identity/principal.ts';
import { outcomeOf } from '../middleware/refusal.ts';
import type { WaitingCall } from '../objects/approvals/port.ts';
import { sessionCalls, UNSAFE } from '../objects/object-calls.ts';
import type { EdgeProgress } from '../tools/edge-execution.ts';
import { type ResolvedCall, resolveCall } from '../tools/resolve-call.ts';

type Call = { tool_name: string; arguments: Record<string, unknown>; timeout_ms: number };

/** Resolves when it is in its session's hands, or at its end where it was made here. `onTaken`: it is in its session. */
export async function makeApproved(
  call: WaitingCall,
  executionId: string,
  about: {
    env: Env;
    configuration: Configuration;
    /** Where its session tells its end. */
    callback: SealedCallback | null;
    onTaken: () => void;
  },
): Promise<Outcome<null>> {
  const { env, configuration, callback, onTaken } = about;
  const { caller, sessionId } = call;
  const admitted = await admittedStill(env, call);
  if (!admitted.ok) return admitted;
  const context = { env, configuration, principal: principalOf(call), receivedMs: Date.now() };
  const resolved = await resolvedAgain(context, call);
  if (!resolved.ok) return resolved;
  const session = sessionCalls(env, caller.tenant, sessionId);
  const { performance, finish } = resolved.value;
  if (performance === undefined) {
    const body = ExecuteSchema.parse({ ...resolved.value.call, detach: true, stdin: false });
    const { calledAs, constraints } = resolved.value;
    const ids = { requestId: call.requestId, executionId };
    const input = { caller, body, calledAs, constraints, idempotency: null, ...ids, callback };
    const accepted = await session((stub) => stub.accept({ ...input, admittedMs: Date.now() }), UNSAFE);
    if (!accepted.ok) return accepted;
    onTaken();
    return success(null);
  }
  const ids = { sessionId, executionId };
  const edgeCall = {
    ...(await performance.begun(ids)),
    idempotency: null,
    timeoutMs: performance.timeoutMs,
    callback,
  };
  const begun = await session((stub) => stub.beginEdgeCall(caller, edgeCall), UNSAFE);
  if (!begun.ok) return begun;
  onTaken();
  let telling: Promise<unknown> = Promise.resolve();
  const tell = (progress: EdgeProgress) => {
    telling = session((stub) => stub.edgeCallProgressed(caller, executionId, progress), UNSAFE).catch(
      () => undefined,
    );
  };
  const execution = finish(await performance.run(ids, new AbortController().signal, tell));
  // The end must not overtake it.
  await telling;
  await session((stub) => stub.endEdgeCall(caller, execution), UNSAFE);
  return success(null);
}

/** Whoever was barred meanwhile calls no more, whatever was approved. */
async function admittedStill(
  env: Env,
  { caller, tokenId, issuedAtMs, apiKeyId }: WaitingCall,
): Promise<Outcome<null>> {
  return outcomeOf(async () => {
    await requireUnbarred(env, { ...caller, tokenId, issuedAtMs, apiKeyId });
    return success(null);
  });
}

async function resolvedAgain(
  context: Parameters<typeof resolveCall>[0],
  { tool, timeoutMs, ...call }: WaitingCall,
): Promise<Outcome<ResolvedCall<Call>>> {
  const asked = { tool_name: tool.name, arguments: call.arguments, timeout_ms: timeoutMs };
  return outcomeOf(async () => {
    const resolved = await resolveCall(context, asked, { root: '', approval: 'given' });
    if (resolved.identity?.digest !== tool.digest)
      return failure('tool_unavailable', `${tool.name} is another tool than the one that was asked for`);
    return success(resolved);
  });
}

function principalOf({
  caller,
  scopes,
  toolPolicy,
  tokenId,
  issuedAtMs,
  apiKeyId,
}: WaitingCall): TenantPrincipal {
  return {
    kind: 'tenant',
    tenant: caller.tenant,
    subject: caller.subject,
    client: 'approval',
    scopes: new Set(scopes),
    toolPolicy,
    tokenId,
    issuedAtMs,
    expiresAtMs: Number.MAX_SAFE_INTEGER,
    apiKeyId,
  };
}
