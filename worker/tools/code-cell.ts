/**
 * The cell that calls a registered function. Its source runs in a namespace of its own, so that calls neither see nor
 * leave variables of the session; arguments come by value, and what it gives is JSON: the value of the cell.
 */
import * as z from 'zod';
import type { RegisteredTool } from '../../shared/registered-tool.ts';
import { WORKDIR } from '../../shared/session.ts';

type CodeTool = Extract<RegisteredTool, { kind: 'code' }>;

const MAX_ANSWER_CHARACTERS = 1_000_000;

export interface CodeCell {
  tool: 'python' | 'node';
  code: string;
}

export function codeCell(tool: CodeTool, args: Record<string, unknown>): CodeCell {
  const call = callOf(tool, args);
  if (tool.language === 'python') {
    const scope = JSON.stringify({ ...call, launch: PYTHON_LAUNCH });
    return { tool: 'python', code: `(lambda s: (exec(s["launch"], s), s["answer"])[1])(${scope})` };
  }
  return { tool: 'node', code: `await (${JAVASCRIPT_LAUNCH})(${JSON.stringify(call)})` };
}

function callOf(tool: CodeTool, args: Record<string, unknown>) {
  return {
    source: tool.code,
    arguments: JSON.stringify(args),
    function: tool.function ?? '',
    tool: tool.name,
  };
}

/**
 * The same in an interpreter of its own, as a command of the shell: for a program, whose kernel is busy with it. Standard
 * output is `{"result": …}` or `{"error": {"name", "message"}}`; what the function prints goes to standard error.
 */
export function codeCommand(tool: CodeTool, args: Record<string, unknown>): string {
  const call = callOf(tool, args);
  const [interpreter, script] =
    tool.language === 'python'
      ? ['python3', pythonScript(JSON.stringify({ ...call, launch: PYTHON_LAUNCH }))]
      : ['node', javascriptScript(JSON.stringify(call))];
  // The subshell leaves the working directory of the session alone. No line of a script is the mark: JSON has no lines.
  return `(cd ${WORKDIR} && exec ${interpreter} - 3>&1 1>&2 <<'${MARK}'\n${script}\n${MARK}\n)`;
}

/** What such a command wrote as its answer; undefined where it wrote none. */
export function codeAnswer(stdout: string): z.infer<typeof CodeAnswerSchema> | undefined {
  try {
    return CodeAnswerSchema.safeParse(JSON.parse(stdout)).data;
  } catch {
    return undefined;
  }
}

const CodeAnswerSchema = z.union([
  z.strictObject({ result: z.unknown() }),
  z.strictObject({ error: z.strictObject({ name: z.string(), message: z.string() }) }),
]);

const MARK = 'END-OF-SCRIPT';
const MAX_ERROR_CHARACTERS = 4_000;

const pythonScript = (scope: string) => `
import json, sys, traceback
scope = ${scope}
code = 0
try:
    exec(scope["launch"], scope)
    given = '{"result": ' + scope["answer"].text + '}'
except BaseException as error:
    traceback.print_exc()
    given = json.dumps({"error": {"name": type(error).__name__, "message": str(error)[:${MAX_ERROR_CHARACTERS}]}})
    code = 1
with open(3, "w", encoding="utf-8") as answer:
    answer.write(given)
sys.exit(code)`;

const javascriptScript = (call: string) => `
(async () => {
  let given;
  let code = 0;
  try {
    const answer = await (${JAVASCRIPT_LAUNCH})(${call});
    given = '{"result": ' + answer[Symbol.for('nodejs.util.inspect.custom')]() + '}';
  } catch (error) {
    console.error(error);
    const message = String(error?.message ?? error).slice(0, ${MAX_ERROR_CHARACTERS});
    given = JSON.stringify({ error: { name: String(error?.name ?? 'Error'), message } });
    code = 1;
  }
  require('node:fs').writeFileSync(3, given);
  process.exit(code);
})();`;

const PYTHON_LAUNCH = `
import asyncio, inspect, json, linecache, types

def find(space):
    for name in [function] if function else [tool, "main"]:
        if callable(space.get(name)):
            return space[name]
    own = [one for one in space.values() if isinstance(one, types.FunctionType) and one.__module__ == "__tool__"]
    if function or len(own) != 1:
        raise LookupError("the source defines no function " + (function or tool + " or main"))
    return own[0]

def check(value, depth=0):
    if depth > 64:
        raise ValueError("the tool gave more than 64 levels of nesting")
    if isinstance(value, dict):
        for one in value.values():
            check(one, depth + 1)
    elif isinstance(value, (list, tuple)):
        for one in value:
            check(one, depth + 1)
    elif isinstance(value, int) and abs(value) > 2**53 - 1:
        raise ValueError("the tool gave an integer beyond 2**53 - 1: give it as text")

class Answer:
    def __init__(self, text):
        self.text = text
    def __repr__(self):
        return self.text

linecache.cache["<tool>"] = (len(source), None, source.splitlines(True), "<tool>")
space = {"__name__": "__tool__"}
exec(compile(source, "<tool>", "exec"), space)
result = find(space)(**json.loads(arguments))
if inspect.isawaitable(result):
    async def wait(one):
        return await one
    result = asyncio.run(wait(result))
check(result)
text = json.dumps(result, allow_nan=False)
if len(text) > ${MAX_ANSWER_CHARACTERS}:
    raise ValueError("the tool gave more than ${MAX_ANSWER_CHARACTERS} characters of JSON")
answer = Answer(text)
`;

const JAVASCRIPT_LAUNCH = `async (call) => {
  const names = (call.function === '' ? [call.tool, 'main'] : [call.function])
    .filter((name) => /^[A-Za-z_$][\\w$]*$/.test(name));
  const named = names.map((name) => 'typeof ' + name + ' === "function" ? ' + name + ' : ').join('');
  let found = new Function('require', call.source + '\\n;return ' + named + 'undefined;')(require);
  if (found === undefined && call.function === '') {
    try { found = new Function('require', 'return (' + call.source + '\\n)')(require); } catch {}
  }
  if (typeof found !== 'function') {
    throw new ReferenceError('the source defines no function ' + (call.function || call.tool + ' or main'));
  }
  const check = (key, value) => {
    if (typeof value !== 'number') return value;
    if (!Number.isFinite(value)) throw new RangeError('the tool gave ' + value + ', which is not JSON');
    if (Number.isInteger(value) && !Number.isSafeInteger(value)) {
      throw new RangeError('the tool gave an integer beyond 2**53 - 1: give it as text');
    }
    return value;
  };
  const text = JSON.stringify((await found(JSON.parse(call.arguments))) ?? null, check) ?? 'null';
  if (text.length > ${MAX_ANSWER_CHARACTERS}) {
    throw new RangeError('the tool gave more than ${MAX_ANSWER_CHARACTERS} characters of JSON');
  }
  return { [Symbol.for('nodejs.util.inspect.custom')]: () => text };
}`;
