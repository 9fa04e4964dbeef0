/** The scopes that an access token may carry. A tool is guarded by `tools:<name>`. */
export const SCOPES = {
  'sessions:read': 'read sessions, executions, events and receipts',
  'sessions:write': 'create and delete sessions',
  'tools:python': 'run python',
  'tools:node': 'run JavaScript',
  'tools:shell': 'run shell commands',
  'tools:file': 'read and write files',
} as const;

export type Scope = keyof typeof SCOPES;

export const OPERATOR_SCOPE = 'operator';
