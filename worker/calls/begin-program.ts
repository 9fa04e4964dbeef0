/** Begins a program in a session: its tools are found and its rights written down before it has its place in the queue. */
import type { SealedCallback } from '../../shared/callback.ts';
import { type CreateProgram, KERNELS, type Program } from '../../shared/code-mode.ts';
import type { Outcome } from '../../shared/errors.ts';
import { ExecuteSchema } from '../../shared/execution.ts';
import { BUILT_IN_TOOLS } from '../../shared/tool.ts';
import { requireScopes } from '../middleware/authentication.ts';
import type { Idempotency } from '../middleware/idempotency.ts';
import { UNSAFE } from '../objects/object-calls.ts';
import { programTools } from '../programs/permitted-tools.ts';
import type { Exchange } from '../routing/route.ts';
import { requireFit } from '../tools/check-call.ts';
import { requireBuiltIn, requireBuiltInCall } from '../tools/held-call.ts';
import type { OwnSession } from './own-session.ts';

export type ProgramRequest = Pick<CreateProgram, 'language' | 'code' | 'tools' | 'limits' | 'arguments'>;

/** Refuses a caller without the right to the language. */
export function requireLanguage(
  { principal, configuration }: Exchange<'tenant'>,
  language: CreateProgram['language'],
): void {
  requireScopes(principal, [BUILT_IN_TOOLS[KERNELS[language]].scope], configuration);
  requireBuiltIn(principal, KERNELS[language]);
}

export async function beginProgram(
  exchange: Exchange<'tenant'>,
  session: OwnSession,
  {
    request,
    idempotency,
    callback = null,
  }: { request: ProgramRequest; idempotency: Idempotency | null; callback?: SealedCallback | null },
): Promise<Outcome<Program>> {
  const { principal } = exchange;
  const { language, code, tools, limits } = request;
  requireLanguage(exchange, language);
  const constraints = requireBuiltInCall(principal, KERNELS[language], { arguments: { code }, root: 'body' });
  const given = request.arguments === undefined ? {} : { arguments: request.arguments };
  const args = { code, program: { tools: await programTools(exchange, { language, tools }), ...given } };
  requireFit(args, 'body.code');
  const input = {
    caller: session.caller,
    body: ExecuteSchema.parse({
      tool_name: KERNELS[language],
      arguments: args,
      timeout_ms: limits.timeout_ms,
      stdin: false,
    }),
    constraints,
    idempotency,
    requestId: exchange.requestId,
    admittedMs: exchange.receivedMs,
    callback,
  };
  const facts = {
    language,
    scopes: [...principal.scopes],
    toolPolicy: principal.toolPolicy,
    client: principal.client,
    tokenId: principal.tokenId,
    issuedAtMs: principal.issuedAtMs,
    apiKeyId: principal.apiKeyId,
    tools: tools ?? null,
    limits,
    parentProgramId: null,
  };
  return session.call((stub) => stub.beginProgram(input, facts), UNSAFE);
}
