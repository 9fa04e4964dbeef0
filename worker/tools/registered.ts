/** Registered tools as definitions, and what is wrong with one. */
import type { DefinedTool, RegisteredTool } from '../../shared/registered-tool.ts';
import { compileSchema, schemaViolations } from '../schema/compile.ts';
import type { ToolDefinition } from './definition.ts';
import { heldDefinition } from './held-definition.ts';
import { type AddressRules, templateFault } from './http/address.ts';
import { refusedHeader } from './http/request.ts';
import type { Guarded, Rights } from './policy.ts';

export function registeredGuard({
  name,
  required_scopes,
  category,
  allowed_callers,
}: RegisteredTool): Guarded {
  return {
    name,
    requiredScopes: required_scopes,
    category,
    ...(allowed_callers === undefined ? {} : { allowedCallers: allowed_callers }),
  };
}

/** As it is shown to one caller. */
export function shownTo(rights: Pick<Rights, 'toolPolicy'>, tool: RegisteredTool): ToolDefinition {
  return heldDefinition(definitionOf(tool), rights);
}

export function definitionOf(tool: RegisteredTool): ToolDefinition {
  const effects = new Set(tool.side_effects);
  const writes = effects.has('write');
  return {
    name: tool.name,
    title: tool.title ?? tool.name,
    description: tool.description,
    category: tool.category,
    inputSchema: tool.input_schema,
    outputSchema: tool.output_schema,
    allowedCallers: tool.allowed_callers,
    effects: {
      readOnly: effects.has('read') && !writes,
      destructive: writes,
      idempotent: effects.has('idempotent'),
      openWorld: tool.kind !== 'code',
    },
  };
}

export interface ToolFault {
  path: string;
  expected: string;
}

/** The first thing for which the tool could not be called. */
export function faultOf(tool: DefinedTool, rules: AddressRules): ToolFault | undefined {
  if (tool.kind === 'http') {
    const address = templateFault(tool.url, rules);
    if (address !== undefined) return { path: 'url', expected: address };
    const header = refusedHeader({ ...tool.headers, ...tool.credentials });
    if (header !== undefined)
      return { path: 'headers', expected: `no header ${header}: it is the connection's` };
  }
  const schemas = { input_schema: tool.input_schema, output_schema: tool.output_schema };
  for (const [field, schema] of Object.entries(schemas)) {
    const fault = schema === undefined ? undefined : schemaFault(schema, field);
    if (fault !== undefined) return fault;
  }
  const { type } = tool.input_schema;
  if (type !== undefined && type !== 'object' && !(Array.isArray(type) && type.includes('object'))) {
    return { path: 'input_schema.type', expected: 'object: arguments are one' };
  }
  return undefined;
}

export function reasonOf({ path, expected }: ToolFault): string {
  return `${path}: expected ${expected}`;
}

function schemaFault(schema: unknown, field: string): ToolFault | undefined {
  const compiled = compileSchema(schema);
  if (!compiled.ok)
    return { path: `${field}${compiled.pointer.replaceAll('/', '.')}`, expected: compiled.expected };
  const checked = schemaViolations(schema, field);
  if (!checked.ok) return { path: field, expected: `a schema that can be checked: ${checked.reason}` };
  return checked.violations[0];
}
