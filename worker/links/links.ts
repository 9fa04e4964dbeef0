/** Upgrades of both links: certificate, headers and session tag are checked here, before any object wakes. */
import { type Failure, failure } from '../../shared/errors.ts';
import { LINK_HEADERS, ROUTES } from '../../shared/host-api.ts';
import { isSessionIdOf, TenantSchema } from '../../shared/ids.ts';
import { type Configuration, configurationOf } from '../configuration.ts';
import type { Env } from '../env.ts';
import { sessionObjectName } from '../objects/session-name.ts';
import { readCertificate } from './certificate.ts';
import { type HostIdentity, internalUpgrade } from './identity.ts';
import { requireNotRevoked } from './revoked-hosts.ts';

/** Serves `GET` of the two link routes. A failure is rendered by the caller. */
export async function routeLink(request: Request, env: Env): Promise<Response | Failure> {
  const configuration = await configurationOf(env);
  const host = await readCertificate(request.headers.get(LINK_HEADERS.certificate), configuration);
  if (!host.ok) return host;
  if (request.headers.get('upgrade')?.toLowerCase() !== 'websocket') return noUpgrade(host.value, env);
  switch (new URL(request.url).pathname) {
    case ROUTES.controlLink:
      return controlLink(host.value, env);
    case ROUTES.sessionLink:
      return sessionLink(request.headers, host.value, { configuration, env });
    default:
      return failure('not_found', 'no such link');
  }
}

/** A host whose WebSocket was refused without a word asks for the word in this way: a standing that is lost goes first. */
async function noUpgrade(host: HostIdentity, env: Env): Promise<Failure> {
  const standing = await requireNotRevoked(env, host.hostId);
  if (!standing.ok) return standing;
  return failure('invalid_request', 'a WebSocket upgrade was expected', {
    violations: [{ path: 'header.Upgrade', expected: 'websocket' }],
  });
}

async function controlLink(host: HostIdentity, env: Env): Promise<Response | Failure> {
  const standing = await requireNotRevoked(env, host.hostId);
  if (!standing.ok) return standing;
  return uncompressed(await env.HOST.getByName(host.hostId).fetch(internalUpgrade(host)));
}

async function sessionLink(
  headers: Headers,
  host: HostIdentity,
  { configuration, env }: { configuration: Configuration; env: Env },
): Promise<Response | Failure> {
  const sessionId = headers.get(LINK_HEADERS.sessionId) ?? '';
  const tenant = TenantSchema.safeParse(headers.get(LINK_HEADERS.tenant)).data;
  const epoch = Number(headers.get(LINK_HEADERS.epoch));
  if (tenant === undefined || !(await isSessionIdOf(configuration.tagKey, tenant, sessionId))) {
    return failure('not_found', 'no such session');
  }
  if (!Number.isSafeInteger(epoch) || epoch < 1) {
    return failure('invalid_request', 'the epoch is missing or wrong', {
      violations: [{ path: `header.${LINK_HEADERS.epoch}`, expected: 'a whole number from 1' }],
    });
  }
  const standing = await requireNotRevoked(env, host.hostId);
  if (!standing.ok) return standing;
  const object = env.SESSION.getByName(sessionObjectName(tenant, sessionId));
  return uncompressed(await object.fetch(internalUpgrade({ ...host, tenant, sessionId, epoch })));
}

/**
 * Declines the compression that a host's WebSocket library offers: grants and receipts do not compress, and output
 * would cost more time than it saves on the way. An extension that does not exist is how the runtime is told so; it is
 * not sent.
 */
function uncompressed({ status, webSocket }: Response): Response {
  return new Response(null, { status, webSocket, headers: { 'sec-websocket-extensions': 'none' } });
}
