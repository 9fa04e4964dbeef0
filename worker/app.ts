/** The gateway: its routes, what every answer carries, and the two places that answer when no route does. */
import { Hono } from 'hono';
import { failure } from '../shared/errors.ts';
import { ROUTES } from '../shared/host-api.ts';
import { ADAPTER_PATHS, adapterRoutes } from './adapters/table.ts';
import { routeLink } from './links/links.ts';
import type { AppEnvironment } from './middleware/app-environment.ts';
import { envelope } from './middleware/envelope.ts';
import { renderError, renderNotFound } from './middleware/problem.ts';
import { Refusal, unwrap } from './middleware/refusal.ts';
import { sameHost } from './middleware/same-host.ts';
import { sameOrigin } from './middleware/same-origin.ts';
import { MCP_PATH } from './routes/mcp.ts';
import { routes } from './routes/table.ts';
import type { Route } from './routing/route.ts';
import { TRANSFER_METHODS, TRANSFER_PATHS, transferSnapshot } from './snapshots/transfer.ts';

export function createApp(): Hono<AppEnvironment> {
  const app = new Hono<AppEnvironment>();
  app.onError(renderError);
  app.notFound(renderNotFound);
  app.use(envelope);
  app.use('/v1/*', sameOrigin);
  app.use(MCP_PATH, sameOrigin, sameHost);
  for (const path of ADAPTER_PATHS) app.use(`${path}/*`, sameOrigin);
  for (const link of [ROUTES.controlLink, ROUTES.sessionLink]) {
    app.get(link, async (c) => {
      const linked = await routeLink(c.req.raw, c.env);
      if (linked instanceof Response) return linked;
      throw new Refusal(linked);
    });
    refuseOtherMethods(app, link, ['GET']);
  }
  for (const path of TRANSFER_PATHS) {
    app.on([...TRANSFER_METHODS], path, async (c) => {
      const snapshotId = c.req.param('snapshot_id') ?? '';
      const sha256 = c.req.param('sha256') ?? null;
      return unwrap(await transferSnapshot(c.req.raw, c.env, { snapshotId, sha256 }));
    });
    refuseOtherMethods(app, path, TRANSFER_METHODS);
  }
  for (const [path, onPath] of byPath([...routes, ...adapterRoutes])) {
    for (const route of onPath) app.on(route.method, path, (c) => route.respond(c));
    refuseOtherMethods(
      app,
      path,
      onPath.map((route) => route.method),
    );
  }
  return app;
}

/** The router's patterns of the paths, with the routes on each. */
function byPath(all: readonly Route[]): Map<string, Route[]> {
  const paths = new Map<string, Route[]>();
  for (const route of all) {
    // A path of a file goes on to the end of the URL, slashes and all.
    const path = route.path.replaceAll('/{path}', '/:path{[\\s\\S]*}').replaceAll(/\{([a-z_]+)\}/g, ':$1');
    paths.set(path, [...(paths.get(path) ?? []), route]);
  }
  return paths;
}

function refuseOtherMethods(app: Hono<AppEnvironment>, path: string, methods: readonly string[]): void {
  // The router answers HEAD with the headers of GET.
  const allowed = methods.flatMap((method) => (method === 'GET' ? ['GET', 'HEAD'] : [method])).join(', ');
  app.all(path, (c) => {
    throw new Refusal(failure('method_not_allowed', `${c.req.method} is not one of ${allowed}`), {
      Allow: allowed,
    });
  });
}
