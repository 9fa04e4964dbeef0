/** The question to the model: a registered HTTP tool, so its address, credentials and rules are those of any tool. */
import * as z from 'zod';
import { failure } from '../../shared/errors.ts';
import { admitOwner, ownersExchange, type RunSurroundings } from '../engine/owner.ts';
import { Refusal } from '../middleware/refusal.ts';
import type { RepairPlan } from '../objects/repair/port.ts';
import { openSecrets } from '../secrets/sealed-secrets.ts';
import { performHttp } from '../tools/http/perform.ts';
import { toolRequest } from '../tools/http/request.ts';
import { mayUse } from '../tools/policy.ts';
import { storedTools } from '../tools/resolve-call.ts';
import { codeIn } from './answer.ts';
import { answerText, type Failed, requestBody } from './prompt.ts';

export const AnsweredSchema = z.discriminatedUnion('ok', [
  z.object({ ok: z.literal(true), code: z.string().nullable(), text: z.string() }),
  z.object({ ok: z.literal(false), detail: z.string() }),
]);
type Answered = z.infer<typeof AnsweredSchema>;

const MAX_TEXT_CHARACTERS = 2_000;
/** A model that is down or busy is asked again after these. */
const PAUSES_MS = [1_000, 4_000];

export async function askModel(
  surroundings: RunSurroundings,
  plan: RepairPlan,
  failed: readonly Failed[],
): Promise<Answered> {
  for (const pauseMs of [...PAUSES_MS, null]) {
    const answer = await askOnce(surroundings, plan, failed);
    if (answer.ok || answer.isFinal || pauseMs === null) {
      return answer.ok ? answer : { ok: false, detail: answer.detail };
    }
    await new Promise((resolve) => setTimeout(resolve, pauseMs));
  }
  return { ok: false, detail: 'the model did not answer' };
}

async function askOnce(
  surroundings: RunSurroundings,
  plan: RepairPlan,
  failed: readonly Failed[],
): Promise<Extract<Answered, { ok: true }> | { ok: false; detail: string; isFinal: boolean }> {
  const { model } = plan.request;
  await admitOwner(surroundings.env, plan.owner);
  const { request, credentials, rules } = await modelRequest(surroundings, plan);
  const body = JSON.stringify(requestBody(plan.request, failed));
  const outcome = await performHttp({
    request: { ...request, method: 'POST', body },
    credentials,
    rules,
    timeoutMs: model.timeout_ms,
    signal: new AbortController().signal,
  });
  if (outcome.status !== 'succeeded') {
    const detail = outcome.error?.message ?? `the model's answer ended as ${outcome.status}`;
    return { ok: false, detail, isFinal: outcome.error?.name === 'AddressRefused' };
  }
  const text = answerText(outcome.structured);
  if (text === undefined) {
    return { ok: false, detail: 'the answer of the model is no chat completion', isFinal: true };
  }
  return { ok: true, code: codeIn(text) ?? null, text: text.slice(0, MAX_TEXT_CHARACTERS) };
}

async function modelRequest(surroundings: RunSurroundings, plan: RepairPlan) {
  const exchange = ownersExchange(surroundings, plan.owner);
  const { configuration } = surroundings;
  const [stored] = await storedTools(exchange, [plan.request.model.tool_name], 'name');
  const isOurs =
    stored?.tool.kind === 'http' &&
    stored.tool.status === 'ready' &&
    mayUse(exchange.principal, {
      requiredScopes: stored.tool.required_scopes,
      category: stored.tool.category,
    });
  const built = stored?.tool.kind === 'http' ? toolRequest(stored.tool, {}) : undefined;
  if (stored === undefined || !isOurs || built?.ok !== true) {
    throw new Refusal(
      failure('tool_unavailable', 'the tool of the model is gone, or not one that can be asked'),
    );
  }
  const owner = { tenant: plan.owner.tenant, holder: stored.tool.name };
  const { sealedCredentials } = stored;
  return {
    request: built.request,
    rules: { ownOrigin: configuration.origin, allowedOrigins: configuration.httpToolOrigins },
    credentials:
      sealedCredentials === null ? {} : await openSecrets(configuration.secretsKey, owner, sealedCredentials),
  };
}
