/** A tool as XAgent registers one: the source of a function that its `@toolwrapper()` describes by its docstring. */
import { failure, type Outcome } from '../../../shared/errors.ts';
import { type RegisteredTool, RegisterToolSchema } from '../../../shared/registered-tool.ts';
import { checkValue, invalid } from '../../middleware/body.ts';
import { registerOne } from '../../routes/tool-registry.ts';
import type { Exchange } from '../../routing/route.ts';
import { functionDocumentation } from './docstring.ts';

const IDENTIFIER = /^[A-Za-z_]\w{0,127}$/;
/** Of their own server: what it gives stands in the prelude. */
const OWN_IMPORTS = /^[ \t]*from[ \t]+core\.(?:register|exceptions|base)[ \t]+import[ \t].*$/gm;
const PRELUDE = `def toolwrapper(*given, **named):
    return lambda one: one

class ToolExecutionError(Exception):
    pass

class OutputNotReady(Exception):
    pass

`;

export async function registerFunction(
  exchange: Exchange<'tenant'>,
  { tool_name, code }: { tool_name: string; code: string },
): Promise<Outcome<{ tool: RegisteredTool; isNew: boolean }>> {
  if (!IDENTIFIER.test(tool_name)) {
    throw invalid([{ path: 'body.tool_name', expected: 'the name of a function in Python' }]);
  }
  const documentation = functionDocumentation(code, tool_name);
  if (documentation === undefined) {
    return failure(
      'invalid_request',
      `Failed to find tool ${tool_name}: the code defines no function of this name.`,
    );
  }
  const { description, properties, required } = documentation;
  const tool = {
    name: tool_name,
    kind: 'code',
    language: 'python',
    function: tool_name,
    code: `${PRELUDE}${code.replaceAll(OWN_IMPORTS, '')}`,
    description: description === '' ? tool_name : description,
    input_schema: { type: 'object', properties, required },
  };
  return registerOne(exchange, checkValue(tool, RegisterToolSchema, 'body'));
}
