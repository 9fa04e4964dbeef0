/** What the Worker of a local stack has beside its text bindings: what `wrangler.toml` says, which a test compares. */
export const WORKER_PARTS = {
  compatibilityDate: '2026-11-02',
  compatibilityFlags: ['queue_consumer_no_wait_for_wait_until'],
  /** Class that the Worker's entry exports, by binding. */
  durableObjects: {
    SESSION: 'SessionObject',
    HOST: 'HostObject',
    POOL: 'PoolObject',
    TENANT: 'TenantObject',
    MCP_CALLS: 'McpCallsObject',
    CATALOGUE: 'CatalogueObject',
    SNAPSHOT_INDEX: 'SnapshotsObject',
    ARTIFACTS: 'ArtifactsObject',
    WORKFLOW: 'WorkflowObject',
    SOURCE: 'SourceObject',
    APPROVALS: 'ApprovalsObject',
    AUDIT: 'AuditObject',
    REPAIR: 'RepairObject',
    PROOFS: 'ProofsObject',
    KEYED_CALL: 'KeyedCallObject',
    WEBHOOKS: 'WebhooksObject',
    TENANT_INDEX: 'TenantIndexObject',
  },
  r2Buckets: { SNAPSHOTS: 'sandgate-snapshots', CONTENT: 'sandgate-content' },
  queueProducers: { NOTICES: 'sandgate-notices' },
  queueConsumers: { 'sandgate-notices': { maxBatchSize: 50, maxBatchTimeout: 0, maxRetries: 0 } },
  workflows: {
    WORKFLOW_RUN: { name: 'workflow-run', className: 'WorkflowRun' },
    REPAIR_RUN: { name: 'repair-run', className: 'RepairRun' },
  },
};
