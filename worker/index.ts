/** The Worker: the gateway's app, and the classes of its objects. */
import { createApp } from './app.ts';
import type { Env } from './env.ts';
import { refuseEarly } from './load/early-refusal.ts';
import { consume } from './webhooks/consume.ts';

export { ApprovalsObject } from './objects/approvals/object.ts';
export { ArtifactsObject } from './objects/artifacts/object.ts';
export { AuditObject } from './objects/audit/object.ts';
export { CatalogueObject } from './objects/catalogue/object.ts';
export { HostObject } from './objects/host/object.ts';
export { KeyedCallObject } from './objects/keyed-call/object.ts';
export { McpCallsObject } from './objects/mcp-calls/object.ts';
export { PoolObject } from './objects/pool/object.ts';
export { ProofsObject } from './objects/proofs/object.ts';
export { RepairObject } from './objects/repair/object.ts';
export { SessionObject } from './objects/session/object.ts';
export { SnapshotsObject } from './objects/snapshots/object.ts';
export { SourceObject } from './objects/source/object.ts';
export { TenantObject } from './objects/tenant/object.ts';
export { TenantIndexObject } from './objects/tenant-index/object.ts';
export { WebhooksObject } from './objects/webhooks/object.ts';
export { WorkflowObject } from './objects/workflow/object.ts';
export { RepairRun } from './repair/run.ts';
export { WorkflowRun } from './workflows/run.ts';

const app = createApp();

export default {
  fetch: (request, env, context) =>
    refuseEarly(request, env, (promise) => context.waitUntil(promise)) ?? app.fetch(request, env, context),
  queue: consume,
} satisfies ExportedHandler<Env>;
