/** Every act of an operator is in the log before it is done: one that cannot be written there is not done. */
import { sha256Hex } from '../../shared/digest.ts';
import { ERRORS } from '../../shared/errors.ts';
import type { Env } from '../env.ts';
import type { OperatorPrincipal } from '../identity/principal.ts';
import { callObject } from './call-object.ts';
import { Refusal, unwrap } from './refusal.ts';

export const AUDIT_OBJECT = 'operators';
const MAX_BODY_LENGTH = 2_048;
const INTERNAL = 'internal';

export interface ActFacts {
  principal: OperatorPrincipal;
  requestId: string;
  operation: string;
  target: Record<string, string>;
  body: unknown;
}

export async function audited(
  { env, waitUntil }: { env: Env; waitUntil: (promise: Promise<unknown>) => void },
  facts: ActFacts,
  act: () => Promise<Response> | Response,
): Promise<Response> {
  const log = () => env.AUDIT.getByName(AUDIT_OBJECT);
  const entry = {
    actor: facts.principal.actor,
    request_id: facts.requestId,
    operation: facts.operation,
    target: facts.target,
    body: await bodyText(facts.body),
  };
  // Written twice, an act that is done once would be two: it is not repeated.
  const n = unwrap(await callObject(() => log().begin(entry), { safe: false }));
  const end = (status: number, code: string | null) =>
    waitUntil(callObject(() => log().end(n, { status, code }), { safe: true }).catch(() => undefined));
  try {
    const response = await act();
    end(response.status, null);
    return response;
  } catch (error: unknown) {
    const code = error instanceof Refusal ? error.failure.code : INTERNAL;
    end(ERRORS[code].status, code);
    throw error;
  }
}

async function bodyText(body: unknown): Promise<string | null> {
  if (body === undefined) return null;
  const text = JSON.stringify(body);
  return text.length <= MAX_BODY_LENGTH ? text : `sha256:${await sha256Hex(text)}`;
}
