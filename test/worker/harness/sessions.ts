/** Sessions of the tests, made on a fake host by the object's own surface. */
import { env } from 'cloudflare:workers';
import { ExecuteSchema } from '../../../shared/execution.ts';
import { newSessionId } from '../../../shared/ids.ts';
import { RESOURCE_CLASSES } from '../../../shared/limits.ts';
import { resolveLimits } from '../../../shared/resource-class.ts';
import { type CreateSession, CreateSessionSchema, type SizedSession } from '../../../shared/session.ts';
import { configurationOf } from '../../../worker/configuration.ts';
import type { ExecuteInput } from '../../../worker/objects/session/port.ts';
import { DOUBLE_IMAGE, type HostDouble } from '../../fixtures/host-double/host-double.ts';

export const WHOLE_CHAIN = { after: 0, edge_after: 0, limit: 1_000 };

export const caller = { tenant: 'acme', subject: 'alice' };

export interface TestSession {
  id: string;
  stub: ReturnType<typeof sessionStub>;
}

export function sessionStub(sessionId: string, tenant = caller.tenant) {
  return env.SESSION.getByName(`${tenant}:${sessionId}`);
}

/** The object as the runtime knows it: to evict it, ring its alarm, or look into it. */
export function sessionObject(sessionId: string) {
  return env.SESSION.get(env.SESSION.idFromName(`${caller.tenant}:${sessionId}`));
}

export async function newId(): Promise<string> {
  return newSessionId((await configurationOf(env)).tagKey, caller.tenant);
}

function sized(request: CreateSession): SizedSession {
  const limits = resolveLimits(request.limits, RESOURCE_CLASSES);
  if (!limits.ok) throw new Error(limits.detail);
  return { ...request, limits: limits.value };
}

export async function createOn(
  host: HostDouble,
  sessionId: string,
  options: { request?: object; ephemeral?: boolean } = {},
) {
  return sessionStub(sessionId).create({
    sessionId,
    caller,
    request: sized(CreateSessionSchema.parse(options.request ?? {})),
    host: { hostId: host.hostId, imageDigest: DOUBLE_IMAGE.digest },
    ephemeral: options.ephemeral ?? false,
  });
}

export async function openSession(host: HostDouble, request: object = {}): Promise<TestSession> {
  const id = await newId();
  const created = await createOn(host, id, { request });
  if (!created.ok) throw new Error(`${created.code}: ${created.detail}`);
  return { id, stub: sessionStub(id) };
}

export interface CallOptions {
  key?: string;
  fingerprint?: string;
  body?: Record<string, unknown>;
}

export function call(command: string, options: CallOptions = {}): ExecuteInput {
  return {
    caller,
    body: ExecuteSchema.parse({ tool_name: 'shell', arguments: { command }, ...options.body }),
    idempotency:
      options.key === undefined
        ? null
        : { key: options.key, fingerprint: options.fingerprint ?? `f-${command}` },
    requestId: 'req_test',
    admittedMs: Date.now(),
  };
}
