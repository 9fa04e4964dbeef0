/** What runs in a session, under the names that models know: code in either language, and commands. */
import * as z from 'zod';
import { KERNELS, ProgramLanguageSchema } from '../../shared/code-mode.ts';
import { BUILT_IN_TOOLS, type ToolName } from '../../shared/tool.ts';
import { checkValue } from '../middleware/body.ts';
import type { CatalogueEntry } from '../tools/catalogue.ts';
import type { ToolDefinition } from '../tools/definition.ts';
import { constraintNote } from '../tools/held-definition.ts';
import { executeTool } from './execute-tools.ts';
import type { McpServerTool } from './tool.ts';
import { jsonSchemaOf } from './tool-schema.ts';

export const EXECUTE_CODE = 'execute_code';
export const RUN_COMMAND = 'run_command';

/**
 * Names that registered tools may have as well, who are then called by `call_tool`: what a name means here is the same for
 * everybody, whatever they may call.
 */
export const SESSION_COMMANDS: ReadonlySet<string> = new Set([EXECUTE_CODE, RUN_COMMAND]);

/** Called by these names too, as REST has them, and not listed beside what stands for them. */
const STOOD_FOR: ReadonlySet<ToolName> = new Set(['python', 'node', 'shell']);

/** `callable`: built-in tools that the caller may call. */
export function sessionCommands(
  callable: readonly CatalogueEntry[],
  { mayCreate }: { mayCreate: boolean },
): { listed: McpServerTool[]; unlisted: McpServerTool[] } {
  const own = (tool: CatalogueEntry) => executeTool(tool, tool.name, { mayCreate });
  const shell = callable.find(({ name }) => name === 'shell');
  const kernels = callable.filter(({ name }) => name === 'python' || name === 'node');
  return {
    listed: [
      ...(kernels.length === 0 ? [] : [executeCode(kernels, mayCreate)]),
      ...(shell === undefined ? [] : [executeTool(shell, RUN_COMMAND, { mayCreate })]),
      ...callable.filter(({ name }) => !STOOD_FOR.has(name)).map(own),
    ],
    unlisted: callable.filter(({ name }) => STOOD_FOR.has(name)).map(own),
  };
}

/** In the languages that its caller may use. */
function executeCode(kernels: readonly CatalogueEntry[], mayCreate: boolean): McpServerTool {
  const languages = ProgramLanguageSchema.options.filter((language) =>
    kernels.some(({ name }) => name === KERNELS[language]),
  );
  const schema = z.strictObject({
    language: z.enum(languages),
    code: BUILT_IN_TOOLS.python.arguments.shape.code.describe('The last expression becomes `value`.'),
  });
  const notes = kernels.flatMap(({ name, constraints = [] }) =>
    constraints.length === 0 ? [] : [`As ${name}: ${constraintNote(constraints)}.`],
  );
  const definition: ToolDefinition = {
    name: EXECUTE_CODE,
    title: 'Run code',
    description: [
      ...notes,
      'Run code in the kernel of the session. Variables, imports and functions live on; top-level await works. In Python, figures and `display(...)` become results.',
    ].join(' '),
    category: 'code',
    inputSchema: jsonSchemaOf(schema, 'input'),
    effects: { readOnly: false, destructive: true, idempotent: false, openWorld: false },
  };
  const target = (given: Record<string, unknown>) => {
    const { language, code } = checkValue(given, schema, 'arguments');
    return { name: KERNELS[language], args: { code } };
  };
  return executeTool(definition, EXECUTE_CODE, { mayCreate, target });
}
