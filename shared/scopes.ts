/** The scopes that an access token may carry. A tool is guarded by `tools:<name>`. */
export const SCOPES = {
  'sessions:read': 'read sessions, executions, events, receipts and files',
  'sessions:write': 'create and delete sessions, write and delete their files',
  'tools:python': 'run python',
  'tools:node': 'run JavaScript',
  'tools:shell': 'run shell commands',
  'tools:file': 'read and write files',
  'tools:http': 'call registered HTTP tools',
  'tools:client': 'see registered tools that the caller executes itself',
  'tools:mcp': 'call tools of MCP servers',
  'usage:read': 'read what the tenant used and what limits it has',
  'tools:approve': 'approve or deny calls that others make of tools that need it',
  'webhooks:read': 'read the webhooks of the tenant',
  'webhooks:write':
    'create, change and remove webhooks, which are told of the sessions of all subjects of the tenant',
  'tools:write': 'register, replace and remove tools, and the sources of tools',
} as const;

export type Scope = keyof typeof SCOPES;
