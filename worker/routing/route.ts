/** What a route is: its documentation and its handler, from one definition. */
import type { Context } from 'hono';
import type * as z from 'zod';
import { type ErrorCode, failure } from '../../shared/errors.ts';
import type { Scope } from '../../shared/scopes.ts';
import { type Configuration, configurationOf } from '../configuration.ts';
import type { Env } from '../env.ts';
import type { OperatorPrincipal, TenantPrincipal } from '../identity/principal.ts';
import { takeLetIn } from '../load/early-refusal.ts';
import { shedLoad } from '../load/shed-load.ts';
import { Admission, type AdmittedCaller, type Lease } from '../middleware/admission.ts';
import type { AppEnvironment } from '../middleware/app-environment.ts';
import { audited } from '../middleware/audit.ts';
import { authenticate, barred, insufficientScope, requireScopes } from '../middleware/authentication.ts';
import { checkValue, JSON_MEDIA_TYPE, parseBody, type RequestBody, readBody } from '../middleware/body.ts';
import { whileTokenHolds } from '../middleware/open-streams.ts';
import { Refusal } from '../middleware/refusal.ts';
import { bearerOfSubprotocol } from '../middleware/subprotocol.ts';
import { proofCalls, SAFE, tenantCalls, UNSAFE } from '../objects/object-calls.ts';
import type { BarredCaller } from '../objects/tenant/bars/bars.ts';
import { hasToolScope } from '../tools/policy.ts';

export type AccessKind = 'public' | 'tenant' | 'operator';
export type Method = 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE';

export interface Access<Kind extends AccessKind> {
  kind: Kind;
  /** Scopes that a tenant's token needs, all of them. */
  scopes?: readonly Scope[];
  /** The part of the edge that it is of, where that has metadata of its own. */
  resource?: string;
  /** A WebSocket: a page, which cannot send headers with it, may give the token as a subprotocol. */
  webSocket?: boolean;
  /** For clients that put their token elsewhere: the `Authorization` that their headers stand for. */
  authorizationOf?: (headers: Headers) => string | undefined;
  /** Scopes of which it needs one at least; which one depends on the body. */
  anyScope?: readonly Scope[];
}

export interface Answer {
  description: string;
  /** Schema by media type; none for an answer without a body. */
  content?: Readonly<Record<string, z.ZodType>>;
  headers?: readonly string[];
}

export interface RouteDocumentation {
  method: Method;
  /** Path with `{name}` parameters. */
  path: string;
  operationId: string;
  summary: string;
  access: Access<AccessKind>;
  query?: z.ZodObject;
  /** Request headers that the route reads, with what they are for. */
  headers?: Readonly<Record<string, string>>;
  body?: z.ZodType;
  /** For bodies that are not JSON only: the types and the cap. */
  raw?: { mediaTypes: readonly string[]; maxBytes: number };
  /** For bodies that the handler reads as they come: the type for the description. */
  streamed?: { mediaType: string };
  answers: Readonly<Record<number, Answer>>;
  errors: readonly ErrorCode[];
}

type PrincipalOf<Kind extends AccessKind> = {
  public: null;
  tenant: TenantPrincipal;
  operator: OperatorPrincipal;
}[Kind];

type ParameterNames<Path extends string> = Path extends `${string}{${infer Name}}${infer Rest}`
  ? Name | ParameterNames<Rest>
  : never;

export interface Exchange<Kind extends AccessKind> {
  request: Request;
  env: Env;
  configuration: Configuration;
  principal: PrincipalOf<Kind>;
  requestId: string;
  receivedMs: number;
  waitUntil: (promise: Promise<unknown>) => void;
  /** To be told what of its time the request waited for a program, or for another call of its session. */
  waitedElsewhere?: (elsewhereMs: number) => void;
}

export interface RouteInput<Path extends string, Query extends z.ZodObject, Body> {
  params: Record<ParameterNames<Path>, string>;
  query: z.output<Query>;
  body: Body;
  raw: RequestBody;
}

interface Definition<Path extends string, Kind extends AccessKind, Query extends z.ZodObject, Body>
  extends Omit<RouteDocumentation, 'path' | 'access' | 'query' | 'body'> {
  path: Path;
  access: Access<Kind>;
  query?: Query;
  body?: z.ZodType<Body>;
  handle: (exchange: Exchange<Kind>, input: RouteInput<Path, Query, Body>) => Promise<Response> | Response;
}

export interface Route extends RouteDocumentation {
  respond: (c: Context<AppEnvironment>) => Promise<Response>;
}

const NO_BODY: RequestBody = { mediaType: JSON_MEDIA_TYPE, bytes: new Uint8Array(0) };
const admission = new Admission();

/**
 * Every request takes one road: caller, rights that need no body, rate, query, body, then the handler. What a step
 * refuses never reaches the next, so an unauthenticated request wakes no object and reads no body.
 */
export function defineRoute<
  const Path extends string,
  Kind extends AccessKind,
  Query extends z.ZodObject = z.ZodObject<Record<never, never>>,
  Body = unknown,
>(definition: Definition<Path, Kind, Query, Body>): Route {
  const { handle, ...documentation } = definition;
  return {
    ...documentation,
    respond: async (c) => {
      c.set('operation', definition.operationId);
      const configuration = await configurationOf(c.env);
      const principal = await callerOf(c, configuration, definition.access);
      const query = parseQuery(c.req.url, definition.query);
      const raw = await rawBodyOf(c.req.raw, definition);
      const body = definition.body === undefined ? undefined : parseBody(raw.bytes, definition.body);
      const waitUntil = (promise: Promise<unknown>) => c.executionCtx.waitUntil(promise);
      const requestId = c.get('requestId');
      const params = c.req.param();
      const act = () =>
        handle(
          {
            request: c.req.raw,
            env: c.env,
            configuration,
            principal: principal as PrincipalOf<Kind>,
            requestId,
            receivedMs: c.get('receivedMs'),
            waitUntil,
            waitedElsewhere: (elsewhereMs) => c.set('elsewhereMs', elsewhereMs),
          },
          {
            // The router matched the path, so each of its parameters is there.
            params: params as Record<ParameterNames<Path>, string>,
            query: query as z.output<Query>,
            body: body as Body,
            raw,
          },
        );
      if (principal?.kind === 'tenant') {
        const { env } = c;
        return whileTokenHolds(await act(), () =>
          admission.barNow(principal, Date.now(), leaseFor(env, principal)),
        );
      }
      if (principal === null || definition.method === 'GET') return act();
      const facts = { principal, requestId, operation: definition.operationId, target: params, body };
      return audited({ env: c.env, waitUntil }, facts, act);
    },
  };
}

async function callerOf(
  c: Context<AppEnvironment>,
  configuration: Configuration,
  access: Access<AccessKind>,
): Promise<TenantPrincipal | OperatorPrincipal | null> {
  if (access.kind === 'public') return null;
  const needed = [...(access.scopes ?? []), ...(access.anyScope ?? [])];
  const waitUntil = (promise: Promise<unknown>) => c.executionCtx.waitUntil(promise);
  const principal = await authenticate(
    {
      authorization:
        access.authorizationOf?.(c.req.raw.headers) ??
        c.req.header('Authorization') ??
        (access.webSocket === true ? bearerOfSubprotocol(c.req.raw.headers) : undefined) ??
        null,
      request: c.req.raw,
      configuration,
      resource: access.resource,
      nowMs: Date.now(),
      waitUntil,
      // Before the body is read, a request of the tenant's rate is spent, or any object is asked.
      onVerified: (caller) =>
        c.set('answered', takeLetIn(c.req.raw) ?? shedLoad(caller, configuration.overloadLateMs, waitUntil)),
      takeProof: (caller, { key, proofId }) => {
        // A caller over its rate costs no object a request and a row.
        admission.requireRate(caller, Date.now());
        // Taken twice, a proof would be one that was used before: it is asked for once.
        return proofCalls(c.env, key)((stub) => stub.take(proofId), UNSAFE);
      },
    },
    needed,
  );
  if (principal.kind === 'tenant') {
    c.set('tenant', principal.tenant);
    c.set('rate', admission.peek(principal, Date.now()));
  }
  if (principal.kind !== access.kind) {
    throw new Refusal(failure('forbidden', `this route is for the ${access.kind}'s tokens`));
  }
  if (principal.kind === 'operator') return principal;
  const asked = { origin: configuration.origin, resource: access.resource };
  requireScopes(principal, access.scopes ?? [], asked);
  if (access.anyScope !== undefined && !hasAny(principal, access.anyScope)) {
    throw insufficientScope('the token has none of the scopes', needed, asked);
  }
  c.set('rate', await admitTenant(c.env, principal, configuration));
  const bar = admission.barOf(principal);
  if (bar !== undefined) throw barred(bar, needed, asked);
  return principal;
}

/** Where any tool's scope will do, so does one of a registered tool. */
function hasAny({ scopes }: TenantPrincipal, wanted: readonly string[]): boolean {
  if (wanted.some((scope) => scopes.has(scope))) return true;
  return hasToolScope(new Set(wanted)) && hasToolScope(scopes);
}

function admitTenant(
  env: Env,
  { tenant, subject }: Pick<TenantPrincipal, 'tenant' | 'subject'>,
  configuration: Configuration,
) {
  return admission.admit({ tenant, subject }, Date.now(), {
    limit: configuration.tenantRequestsPerMinute,
    lease: leaseFor(env, { tenant, subject }),
  });
}

function leaseFor(env: Env, { tenant, subject }: AdmittedCaller): Lease {
  // Leasing twice only gives the tenant fewer requests in this window, so a reset may be repeated.
  return (count, revision) =>
    tenantCalls(env, tenant)((stub) => stub.leaseRequests(count, { tenant, subject, revision }), SAFE);
}

/**
 * For who is named by a signed address in place of a token: spends a request of its tenant, and says why it may not call
 * any more.
 */
export async function admitHolder(
  env: Env,
  holder: BarredCaller & { tenant: string },
  configuration: Configuration,
): Promise<string | undefined> {
  await admitTenant(env, holder, configuration);
  return admission.barOf(holder);
}

function parseQuery(url: string, schema: z.ZodObject | undefined): unknown {
  if (schema === undefined) return {};
  const query: Record<string, string> = Object.create(null);
  for (const [name, value] of new URL(url).searchParams) {
    if (name in query) {
      throw new Refusal(
        failure('invalid_request', `query.${name} is given twice`, {
          violations: [{ path: `query.${name}`, expected: 'one value' }],
        }),
      );
    }
    query[name] = value;
  }
  return checkValue({ ...query }, schema, 'query');
}

async function rawBodyOf(
  request: Request,
  definition: Pick<RouteDocumentation, 'body' | 'raw'>,
): Promise<RequestBody> {
  if (definition.raw !== undefined) {
    return readBody(request, definition.raw.mediaTypes, definition.raw.maxBytes);
  }
  return definition.body === undefined ? NO_BODY : readBody(request, [JSON_MEDIA_TYPE]);
}
