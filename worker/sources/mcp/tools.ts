/** The tools that an MCP server lists, as tools of the registry. A bad one is kept as broken; its neighbours are not touched. */
import * as z from 'zod';
import { MAX_TOOL_SCHEMA_CHARACTERS, McpToolSchema } from '../../../shared/registered-tool.ts';
import type { ToolSource } from '../../../shared/tool-source.ts';
import type { PutTool } from '../../objects/catalogue/port.ts';
import type { AddressRules } from '../../tools/http/address.ts';
import { faultOf, reasonOf } from '../../tools/registered.ts';
import { noted, ruled, type SourceProblem, type SourceTools, sourceToolName } from '../source-tool.ts';
import { parameterHeaderFault } from './parameter-headers.ts';

const MAX_DESCRIPTION_CHARACTERS = 8_192;
const MAX_TITLE_CHARACTERS = 128;
const MAX_REMOTE_NAME_CHARACTERS = 256;

const Text = z.string().optional().catch(undefined);
const ListedSchema = z.looseObject({
  name: z.string().min(1).max(MAX_REMOTE_NAME_CHARACTERS),
  title: Text,
  description: Text,
  inputSchema: z.unknown().optional(),
  outputSchema: z.unknown().optional(),
  annotations: z
    .looseObject({
      title: Text,
      readOnlyHint: z.boolean().optional().catch(undefined),
      idempotentHint: z.boolean().optional().catch(undefined),
    })
    .optional()
    .catch(undefined),
});
type Listed = z.infer<typeof ListedSchema>;

export async function mcpTools(
  source: ToolSource,
  listed: readonly unknown[],
  rules: AddressRules,
): Promise<SourceTools> {
  const puts: PutTool[] = [];
  const problems: SourceProblem[] = [];
  const names = new Set<string>();
  for (const one of listed) {
    const parsed = ListedSchema.safeParse(one);
    if (!parsed.success) {
      noted(problems, { name: nameIn(one), reason: 'it is not a tool with a name' });
      continue;
    }
    const put = await putOf(source, parsed.data, rules);
    if (names.has(put.tool.name)) noted(problems, { name: parsed.data.name, reason: 'it is listed twice' });
    else puts.push(put);
    names.add(put.tool.name);
  }
  return { puts, problems };
}

async function putOf(source: ToolSource, listed: Listed, rules: AddressRules): Promise<PutTool> {
  const input = schemaOf(listed.inputSchema, 'inputSchema');
  const output = listed.outputSchema === undefined ? {} : schemaOf(listed.outputSchema, 'outputSchema');
  const title = listed.title ?? listed.annotations?.title;
  const description = listed.description?.trim() || title || listed.name;
  const tool = McpToolSchema.parse({
    kind: 'mcp',
    name: await sourceToolName(source.name, listed.name),
    remote_name: listed.name,
    ...(title === undefined || title === '' ? {} : { title: title.slice(0, MAX_TITLE_CHARACTERS) }),
    description: description.slice(0, MAX_DESCRIPTION_CHARACTERS),
    ...ruled(source, listed.name, { category: source.name }),
    input_schema: input.schema ?? { type: 'object' },
    ...(output.schema === undefined ? {} : { output_schema: output.schema }),
    side_effects: effectsOf(listed),
  });
  const fault = faultOf(tool, rules);
  const header = parameterHeaderFault(tool.input_schema);
  const reason = input.reason ?? output.reason ?? header ?? (fault === undefined ? null : reasonOf(fault));
  return { tool, credentials: null, fault: reason };
}

function schemaOf(schema: unknown, field: string): { schema?: Record<string, unknown>; reason?: string } {
  const parsed = z.record(z.string(), z.unknown()).safeParse(schema);
  if (!parsed.success) return { reason: `${field}: expected a JSON Schema that is an object` };
  if (JSON.stringify(parsed.data).length <= MAX_TOOL_SCHEMA_CHARACTERS) return { schema: parsed.data };
  return { reason: `${field}: expected at most ${MAX_TOOL_SCHEMA_CHARACTERS} characters` };
}

function effectsOf({ annotations }: Listed): ('read' | 'write' | 'idempotent')[] {
  return [
    annotations?.readOnlyHint === true ? ('read' as const) : ('write' as const),
    ...(annotations?.idempotentHint === true ? (['idempotent'] as const) : []),
  ];
}

function nameIn(one: unknown): string | null {
  return z.looseObject({ name: z.string() }).safeParse(one).data?.name ?? null;
}
