/** Which tools a program may call: those that it names, or all that its caller may call, as far as they have room. */
import { type CreateProgram, MAX_PROGRAM_TOOLS, type ProgramTool } from '../../shared/code-mode.ts';
import type { RegisteredTool } from '../../shared/registered-tool.ts';
import { ToolNameSchema } from '../../shared/tool.ts';
import { invalid } from '../middleware/body.ts';
import { unwrap } from '../middleware/refusal.ts';
import { catalogueCalls, SAFE } from '../objects/object-calls.ts';
import { toolNotFound } from '../tools/check-call.ts';
import type { ResolveContext } from '../tools/performance.ts';
import { mayBeCalledBy, mayUse, rightsOf } from '../tools/policy.ts';
import { registeredGuard, shownTo } from '../tools/registered.ts';
import { storedTools } from '../tools/resolve-call.ts';
import { programTool } from './program-tools.ts';

/** Of the descriptions of all functions: they travel with the code. */
const MAX_STUB_CHARACTERS = 384 * 1024;

export async function programTools(
  context: ResolveContext,
  { language, tools: names }: Pick<CreateProgram, 'language' | 'tools'>,
  root = 'body.',
): Promise<ProgramTool[]> {
  const permitted = names === undefined ? await allOf(context) : await named(context, names, root);
  const tools: ProgramTool[] = [];
  let characters = 0;
  for (const tool of permitted) {
    const stub = await programTool(shownTo(context.principal, tool), language);
    characters += JSON.stringify(stub).length;
    // What finds no room is called by its name; what was asked for by name must be there.
    if (characters > MAX_STUB_CHARACTERS) {
      if (names === undefined) break;
      throw invalid([
        {
          path: `${root}tools`,
          expected: `tools with at most ${MAX_STUB_CHARACTERS} characters of description`,
        },
      ]);
    }
    tools.push(stub);
  }
  return tools;
}

async function named(
  context: ResolveContext,
  names: readonly string[],
  root: string,
): Promise<RegisteredTool[]> {
  const unique = [...new Set(names)];
  const builtIn = unique.find((name) => ToolNameSchema.safeParse(name).success);
  if (builtIn !== undefined) {
    const path = `${root}tools.${names.indexOf(builtIn)}`;
    throw invalid([{ path, expected: `a registered tool: what ${builtIn} does, the program does itself` }]);
  }
  const stored = await storedTools(context, unique, 'name');
  const found = new Map(stored.map(({ tool }) => [tool.name, tool]));
  return unique.map((name) => {
    const tool = found.get(name);
    if (tool === undefined || !isPermitted(context, tool)) {
      throw toolNotFound(context.principal, name, `${root}tools.${names.indexOf(name)}.`);
    }
    return tool;
  });
}

async function allOf(context: ResolveContext): Promise<RegisteredTool[]> {
  const { env, principal } = context;
  const listed = unwrap(
    await catalogueCalls(env, principal.tenant)(
      (stub) =>
        stub.list({
          ...rightsOf(principal),
          caller: 'code',
          order: 'name',
          after: null,
          limit: MAX_PROGRAM_TOOLS,
          maxCharacters: 2 * MAX_STUB_CHARACTERS,
        }),
      SAFE,
    ),
  );
  return listed.tools.filter((tool) => isPermitted(context, tool));
}

function isPermitted({ principal }: ResolveContext, tool: RegisteredTool): boolean {
  return mayUse(principal, registeredGuard(tool)) && mayBeCalledBy('code', tool.allowed_callers);
}
