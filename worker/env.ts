/** The bindings of the Worker. Text bindings hold JSON or keys; they are parsed once in `configuration.ts`. */

import type { ApprovalsPort } from './objects/approvals/port.ts';
import type { ArtifactsPort } from './objects/artifacts/port.ts';
import type { AuditPort } from './objects/audit/port.ts';
import type { CataloguePort } from './objects/catalogue/port.ts';
import type { HostPort } from './objects/host/port.ts';
import type { KeyedCallPort } from './objects/keyed-call/port.ts';
import type { McpCallsPort } from './objects/mcp-calls/port.ts';
import type { ObjectNamespace } from './objects/namespace.ts';
import type { PoolPort } from './objects/pool/port.ts';
import type { ProofsPort } from './objects/proofs/port.ts';
import type { RepairPort } from './objects/repair/port.ts';
import type { RunNamespace } from './objects/runs/run-namespace.ts';
import type { SessionPort } from './objects/session/port.ts';
import type { SnapshotsPort } from './objects/snapshots/port.ts';
import type { SourcePort } from './objects/source/port.ts';
import type { TenantPort } from './objects/tenant/port.ts';
import type { TenantIndexPort } from './objects/tenant-index/port.ts';
import type { WebhooksPort } from './objects/webhooks/port.ts';
import type { WorkflowPort } from './objects/workflow/port.ts';
import type { NoticeQueue } from './webhooks/message.ts';
import type { WorkersAi } from './workers-ai.ts';

export interface Env {
  SESSION: ObjectNamespace<SessionPort>;
  HOST: ObjectNamespace<HostPort>;
  POOL: ObjectNamespace<PoolPort>;
  TENANT: ObjectNamespace<TenantPort>;
  TENANT_INDEX: ObjectNamespace<TenantIndexPort>;
  MCP_CALLS: ObjectNamespace<McpCallsPort>;
  CATALOGUE: ObjectNamespace<CataloguePort>;
  SNAPSHOT_INDEX: ObjectNamespace<SnapshotsPort>;
  /** Chunks and manifests of snapshots, encrypted by the hosts that made them. */
  SNAPSHOTS: R2Bucket;
  ARTIFACTS: ObjectNamespace<ArtifactsPort>;
  /** Artifacts and long outputs, encrypted by this edge. */
  CONTENT: R2Bucket;
  WORKFLOW: ObjectNamespace<WorkflowPort>;
  /** Runs of workflows, on the engine of Workflows. */
  WORKFLOW_RUN: RunNamespace;
  SOURCE: ObjectNamespace<SourcePort>;
  APPROVALS: ObjectNamespace<ApprovalsPort>;
  AUDIT: ObjectNamespace<AuditPort>;
  /** Used proofs of possession, by the thumbprint of their key. */
  PROOFS: ObjectNamespace<ProofsPort>;
  KEYED_CALL: ObjectNamespace<KeyedCallPort>;
  REPAIR: ObjectNamespace<RepairPort>;
  WEBHOOKS: ObjectNamespace<WebhooksPort>;
  /** What is to be told to webhooks and callbacks. */
  NOTICES: NoticeQueue;
  /** Self-healing runs, on the same engine. */
  REPAIR_RUN: RunNamespace;
  /** Origin of this edge, `iss` of its grants, for example `https://sandgate.example.com`. */
  EDGE_ORIGIN: string;
  /**
   * JSON array of issuers: `{issuer, audience, jwks: {keys} or jwks_url, algorithms, tenant_claim?, tenants?}`. An
   * issuer without `tenants` may name any tenant: give the list to each where there are several.
   */
  ISSUERS: string;
  /** Private Ed25519 JWK (JSON) that signs key sets and host certificates. */
  EDGE_ROOT_KEY: string;
  /** Private Ed25519 JWK (JSON) that signs grants. */
  GRANT_KEY: string;
  /** Private Ed25519 JWK (JSON) that counter-signs receipts. */
  RECEIPT_KEY: string;
  /** Version of the key set; raise it whenever a key changes. */
  KEY_SET_VERSION: string;
  /**
   * JSON object `{grant?, receipt?}` with arrays of `{kid, jwk, not_before, not_after, revoked_at}`: public keys that signed
   * before. Grants of theirs hold until `not_after`, receipts as long as they are here.
   */
  FORMER_KEYS?: string;
  /** base64url, 32 bytes: key of the tags in session ids. */
  ID_SECRET: string;
  /** SHA-256 (hex) of the operator's token, which holds no dot. */
  OPERATOR_TOKEN_SHA256: string;
  /**
   * JSON array of the pools of this edge: names, or `{name, region?, classes?}` for a pool that is for sessions of a region or of
   * some resource classes. `default` is one of them.
   */
  POOLS: string;
  /**
   * JSON array of origins that HTTP tools may call beside public https hosts, for example
   * `http://tools.internal:8080`. None when it is absent.
   */
  HTTP_TOOL_ORIGINS?: string;
  /** JSON array of origins that webhooks and callbacks may have beside public https hosts. None when it is absent. */
  WEBHOOK_ORIGINS?: string;
  /**
   * JSON object `{kind: "openai", url, model, …}` or `{kind: "workers-ai", model, …}`: the model whose embeddings the search of
   * tools uses beside words. None when it is absent.
   */
  EMBEDDINGS?: string;
  /** Bearer key of an `openai` endpoint. */
  EMBEDDINGS_KEY?: string;
  /** Workers AI: for `EMBEDDINGS` and `REPAIR_MODELS` that say so. */
  AI?: WorkersAi;
  /** JSON array of the models of Workers AI that repair runs may ask. None when it is absent. */
  REPAIR_MODELS?: string;
  /**
   * JSON object `{small?, standard?, large?, io?}` with sizes of sandboxes that differ from the usual ones, for example
   * `{"large": {"cpus": 4}}`.
   */
  RESOURCE_CLASSES?: string;
  /** `true` where the engine of Workflows does not go on by itself after a restart: a development stack's. */
  WORKFLOWS_NEED_TAKING_UP?: string;
  /** Requests per minute of a tenant. */
  TENANT_REQUESTS_PER_MINUTE: string;
  /** An isolate whose work comes later than so many milliseconds, for longer than a second, sheds load; 25 where it is not given. */
  OVERLOAD_LATE_MS?: string;
  /** A line of the log for each request where it is `on`. */
  REQUEST_LOG?: string;
  /** Data set of Workers Analytics Engine: a point for each request. */
  METRICS?: MetricsSink;
}

/** What is used of an Analytics Engine data set. */
export interface MetricsSink {
  writeDataPoint(point: { indexes: string[]; blobs: string[]; doubles: number[] }): void;
}
