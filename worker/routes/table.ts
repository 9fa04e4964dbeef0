/** All routes: the router is made from this table, and so is the description of the API. */
import type { Route } from '../routing/route.ts';
import { apiKeyRoutes } from './api-keys.ts';
import { approvalRoutes } from './approvals.ts';
import { artifactUrlRoutes } from './artifact-urls.ts';
import { artifactRoutes } from './artifacts.ts';
import { auditRoutes } from './audit.ts';
import { documentRoutes } from './documents.ts';
import { enrollmentTokenRoutes } from './enrollment-tokens.ts';
import { executeRoutes } from './execute.ts';
import { executionRoutes } from './executions.ts';
import { exportSession } from './export.ts';
import { fileRoutes } from './files.ts';
import { hostDutyRoutes } from './host-duties.ts';
import { mcp } from './mcp.ts';
import { mcpResume } from './mcp-resume.ts';
import { operatorRoutes } from './operator.ts';
import { operatorToolRoutes } from './operator-tools.ts';
import { readOutput } from './output.ts';
import { pausingRoutes } from './pausing.ts';
import { poolRoutes } from './pools.ts';
import { processRoutes } from './processes.ts';
import { programRoutes } from './programs.ts';
import { repairRunRoutes } from './repair-runs.ts';
import { retentionRoutes } from './retention.ts';
import { streamEventsOfSession } from './session-events.ts';
import { sessionRoutes } from './sessions.ts';
import { snapshotRoutes } from './snapshots.ts';
import { sourceWebhook } from './source-webhook.ts';
import { tenantRoutes } from './tenants.ts';
import { terminal } from './terminal.ts';
import { toolCalls } from './tool-calls.ts';
import { toolRegistryRoutes } from './tool-registry.ts';
import { toolSourceRoutes } from './tool-sources.ts';
import { toolRoutes } from './tools.ts';
import { usageRoutes } from './usage.ts';
import { webhookRoutes } from './webhooks.ts';
import { workflowRoutes } from './workflows.ts';

const described: Route[] = [
  ...sessionRoutes,
  ...pausingRoutes,
  ...snapshotRoutes,
  ...artifactRoutes,
  ...artifactUrlRoutes,
  ...executeRoutes,
  ...executionRoutes,
  readOutput,
  exportSession,
  streamEventsOfSession,
  ...programRoutes,
  ...fileRoutes,
  terminal,
  ...processRoutes,
  ...toolRoutes,
  ...toolRegistryRoutes,
  ...toolSourceRoutes,
  sourceWebhook,
  ...approvalRoutes,
  toolCalls,
  ...workflowRoutes,
  ...repairRunRoutes,
  ...webhookRoutes,
  mcp,
  mcpResume,
  ...operatorRoutes,
  ...enrollmentTokenRoutes,
  ...poolRoutes,
  ...operatorToolRoutes,
  ...hostDutyRoutes,
  ...tenantRoutes,
  ...retentionRoutes,
  ...apiKeyRoutes,
  ...auditRoutes,
  ...usageRoutes,
];

export const routes: readonly Route[] = [...described, ...documentRoutes(described)];
