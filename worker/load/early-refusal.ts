/**
 * The refusal of an isolate that has too much to do, before anything else: no route is looked for, no token verified, no byte
 * of a body read. It is for callers whose token was verified a moment ago; who is not known yet takes the long road.
 */
import { configurationNow } from '../configuration.ts';
import type { Env } from '../env.ts';
import { rememberedCaller } from '../middleware/authentication.ts';
import { tellRequest, UNROUTED } from '../middleware/observation.ts';
import { problemResponse } from '../middleware/problem.ts';
import { REQUEST_ID_HEADER, requestIdOf } from '../middleware/request-id.ts';
import { type Answered, admitLoad, isShedding, overloaded } from './shed-load.ts';

const HEADERS = { 'X-Content-Type-Options': 'nosniff', 'Cache-Control': 'no-store' };

/** What is to be called when those are answered that were let in here. */
const letIn = new WeakMap<Request, Answered>();

/** Undefined where the request is to take its road. */
export function refuseEarly(
  request: Request,
  env: Env,
  waitUntil: (promise: Promise<unknown>) => void,
): Response | undefined {
  if (!isShedding()) return undefined;
  const configuration = configurationNow(env);
  if (configuration === undefined) return undefined;
  const receivedMs = Date.now();
  const caller = rememberedCaller(request.headers.get('Authorization'), configuration, receivedMs);
  if (caller === undefined) return undefined;
  const answered = admitLoad(caller, configuration.overloadLateMs, waitUntil);
  if (answered !== undefined) {
    letIn.set(request, answered);
    return undefined;
  }
  const requestId = requestIdOf(request.headers);
  const refused = overloaded();
  const response = problemResponse(refused, requestId, { ...HEADERS, [REQUEST_ID_HEADER]: requestId });
  tellRequest(env, {
    operation: UNROUTED,
    method: request.method,
    status: response.status,
    code: refused.code,
    requestId,
    tenant: caller.tenant,
    receivedMs,
  });
  return response;
}

/** Undefined where nothing was asked before: the request has still to be admitted. */
export function takeLetIn(request: Request): Answered | undefined {
  const answered = letIn.get(request);
  letIn.delete(request);
  return answered;
}
