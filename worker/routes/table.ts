/** All routes: the router is made from this table, and so is the description of the API. */
import { documentRoutes } from './documents.ts';
import { executeRoutes } from './execute.ts';
import { executionRoutes } from './executions.ts';
import { mcp } from './mcp.ts';
import { operatorRoutes } from './operator.ts';
import type { Route } from './route.ts';
import { sessionRoutes } from './sessions.ts';
import { toolCalls } from './tool-calls.ts';
import { listTools } from './tools.ts';

const described: Route[] = [
  ...sessionRoutes,
  ...executeRoutes,
  ...executionRoutes,
  listTools,
  toolCalls,
  mcp,
  ...operatorRoutes,
];

export const routes: readonly Route[] = [...described, ...documentRoutes(described)];
