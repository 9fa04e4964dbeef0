/** The tools of a caller as XAgent declares them: name, description and parameters, and the environments they belong to. */
import * as z from 'zod';
import type { RegisteredTool } from '../../../shared/registered-tool.ts';
import { without } from '../../formats/json-schema.ts';
import { exportedNames, FUNCTION_NAMES } from '../../formats/names.ts';
import { objectSchema } from '../../formats/object-schema.ts';
import { Refusal } from '../../middleware/refusal.ts';
import type { Exchange } from '../../routing/route.ts';
import { callableTools } from '../../tools/catalogue.ts';
import type { JsonSchema, ToolDefinition } from '../../tools/definition.ts';
import { TOOL_LIST_LIMITS, toolPage } from '../../tools/list.ts';
import { mayUse } from '../../tools/policy.ts';
import { definitionOf, registeredGuard, shownTo } from '../../tools/registered.ts';
import { storedTools } from '../../tools/resolve-call.ts';
import { nodeIdOf, nodeOf } from './node.ts';
import { WEB_ENVIRONMENT, XAGENT_ENVIRONMENTS, XAGENT_TOOLS, type XAgentTool } from './tools.ts';
import { reachesNetwork } from './web.ts';

export interface Declaration {
  name: string;
  description: string;
  parameters: JsonSchema;
}

const MAX_DESCRIPTION_CHARACTERS = 1_024;
/** A client reads all of them into one prompt; the others are found by `retrieving_tools`. */
const MAX_DECLARED = 1_000;

const ParametersSchema = z.object({
  type: z.literal('object'),
  properties: z.record(z.string(), z.unknown()).default({}),
  required: z.array(z.string()).default([]),
});

/** Theirs that stand for built-in tools, of which the caller may call. */
export function ownTools({ principal }: Pick<Exchange<'tenant'>, 'principal'>): XAgentTool[] {
  const callable = new Set<string>(callableTools(principal).map(({ name }) => name));
  return XAGENT_TOOLS.filter((tool) => callable.has(tool.of));
}

function ownDeclaration({ name, description, arguments: schema, unlisted }: XAgentTool): Declaration {
  const { properties, ...rest } = ParametersSchema.parse(z.toJSONSchema(schema, { io: 'input' }));
  const parameters = { ...rest, properties: without(properties, unlisted ?? []) };
  return { name, description: description.slice(0, MAX_DESCRIPTION_CHARACTERS), parameters };
}

function declaration(tool: ToolDefinition, name: string): Declaration {
  const description = tool.description.slice(0, MAX_DESCRIPTION_CHARACTERS);
  return { name, description, parameters: objectSchema(tool.inputSchema) };
}

async function declarations(tools: readonly ToolDefinition[]): Promise<Declaration[]> {
  const names = await exportedNames(
    tools.map(({ name }) => name),
    FUNCTION_NAMES,
  );
  return tools.map((tool) => declaration(tool, names.get(tool.name) ?? tool.name));
}

export async function availableTools(exchange: Exchange<'tenant'>) {
  const shown = await shownTools(exchange);
  const own = shown.map(ownDeclaration);
  const replaced = new Set<string>(XAGENT_TOOLS.map(({ of }) => of));
  const registered: ToolDefinition[] = [];
  let cursor: string | undefined;
  do {
    const page = await toolPage(exchange, { cursor, limit: TOOL_LIST_LIMITS.max });
    registered.push(...page.tools.filter(({ name }) => !replaced.has(name)));
    cursor = page.nextCursor ?? undefined;
  } while (cursor !== undefined && registered.length < MAX_DECLARED);
  const declared = [...own, ...(await declarations(registered.slice(0, MAX_DECLARED)))];
  return {
    available_envs: environments(shown),
    available_tools: declared.map(({ name }) => name),
    tools_json: declared,
  };
}

/** Without those that need a network where the node has none. A node that there is not is none. */
async function shownTools(exchange: Exchange<'tenant'>): Promise<XAgentTool[]> {
  const own = ownTools(exchange);
  if (await hasNetwork(exchange)) return own;
  return own.filter(({ environment }) => environment !== WEB_ENVIRONMENT);
}

async function hasNetwork(exchange: Exchange<'tenant'>): Promise<boolean> {
  if (nodeIdOf(exchange.request.headers) === undefined) return false;
  try {
    return await reachesNetwork(await nodeOf(exchange));
  } catch (error: unknown) {
    if (error instanceof Refusal) return false;
    throw error;
  }
}

function environments(own: readonly XAgentTool[]) {
  return Object.entries(XAGENT_ENVIRONMENTS).flatMap(([name, description]) => {
    const tools = own.filter(({ environment }) => environment === name).map((tool) => tool.name);
    return tools.length === 0 ? [] : [{ name, description, total_tools: tools.length, tools }];
  });
}

export async function environmentSchemas(exchange: Exchange<'tenant'>, names: readonly string[]) {
  const known = environments(await shownTools(exchange));
  return {
    envs_json: known.filter(({ name }) => names.includes(name)),
    missing_envs: names.filter((name) => !known.some((environment) => environment.name === name)),
  };
}

/** Found tools by the names that they are called by here. */
export async function foundDeclarations(
  exchange: Exchange<'tenant'>,
  found: readonly ToolDefinition[],
): Promise<Declaration[]> {
  const own = await shownTools(exchange);
  const registered = await declarations(found);
  const given = found.flatMap((tool, index) => {
    const theirs = own.filter(({ of }) => of === tool.name).map(ownDeclaration);
    const itself = registered[index];
    return theirs.length > 0 || itself === undefined ? theirs : [itself];
  });
  return given.filter(({ name }, index) => given.findIndex((one) => one.name === name) === index);
}

export async function namedDeclarations(exchange: Exchange<'tenant'>, names: readonly string[]) {
  const byName = new Map(ownTools(exchange).map((tool) => [tool.name, ownDeclaration(tool)]));
  for (const tool of callableTools(exchange.principal)) byName.set(tool.name, declaration(tool, tool.name));
  const others = names.filter((name) => !byName.has(name));
  for (const kind of ['function_name', 'name'] as const) {
    const stored = await storedTools(exchange, others, kind);
    const usable = stored
      .map(({ tool }) => tool)
      .filter((tool) => mayUse(exchange.principal, registeredGuard(tool)));
    const declared = await declarations(usable.map((tool) => shownTo(exchange.principal, tool)));
    for (const [index, { name }] of usable.entries()) {
      const one = declared[index];
      if (one === undefined) continue;
      byName.set(kind === 'name' ? name : one.name, one);
    }
  }
  return {
    tools_json: names.flatMap((name) => byName.get(name) ?? []),
    missing_tools: names.filter((name) => !byName.has(name)),
  };
}

export async function registeredDeclaration(tool: RegisteredTool): Promise<Declaration | undefined> {
  const [declared] = await declarations([definitionOf(tool)]);
  return declared;
}
