import { describe, expect, test } from 'vitest';
import * as z from 'zod';
import { ToolNameSchema } from '../../../shared/tool.ts';
import { exportTools, TOOL_FORMATS } from '../../../worker/formats/export.ts';
import { tokenOf } from '../fixture-issuer.ts';
import { api, problemIn } from '../harness/api.ts';
import { DOUBLING_SCHEMA, FETCH_SCHEMA, FILE_SCHEMA, TREE_SCHEMA, toolNamed } from './tools.ts';

const TOOLS = [
  toolNamed('web.fetch', FETCH_SCHEMA),
  toolNamed('file', FILE_SCHEMA),
  toolNamed('tree', TREE_SCHEMA),
  toolNamed('doubling', DOUBLING_SCHEMA),
  toolNamed('free', { type: 'object', additionalProperties: { type: 'number' } }),
];

describe.each(TOOL_FORMATS)('the format %s', (format) => {
  test('gives the same every time, and leaves the definitions alone', async () => {
    const before = structuredClone(TOOLS);
    const first = await exportTools(TOOLS, { format, strict: false });
    expect(await exportTools(TOOLS, { format, strict: false })).toEqual(first);
    expect(TOOLS).toEqual(before);
    expect(JSON.stringify(first).length).toBeLessThan(1_000_000);
  });

  test('names the tools that it had to rename', async () => {
    const { names } = await exportTools(TOOLS, { format, strict: false });
    const renamed = Object.entries(names);
    expect(renamed.map(([, original]) => original)).toEqual(format === 'mcp' ? [] : ['web.fetch']);
  });
});

describe('declarations', () => {
  test('for OpenAI’s chat API say for each tool whether it is strict', async () => {
    const { tools } = await exportTools(TOOLS, { format: 'openai', strict: true });
    expect(tools).toMatchObject([
      { type: 'function', function: { strict: true, parameters: { required: ['url', 'n', 'o'] } } },
      { type: 'function', function: { name: 'file', strict: true } },
      { type: 'function', function: { name: 'tree', strict: true } },
      { type: 'function', function: { name: 'doubling', strict: true } },
      { type: 'function', function: { name: 'free', strict: false } },
    ]);
    const { tools: loose } = await exportTools(TOOLS.slice(0, 1), { format: 'openai', strict: false });
    expect(loose).toMatchObject([{ function: { strict: false, parameters: FETCH_SCHEMA } }]);
  });

  test('for OpenAI’s responses API are flat', async () => {
    const { tools } = await exportTools(TOOLS.slice(2, 3), { format: 'openai-responses', strict: true });
    expect(tools).toMatchObject([
      { type: 'function', name: 'tree', description: 'Does tree.', strict: true },
    ]);
  });

  test('for OpenAI are no longer than it takes', async () => {
    const tool = { ...toolNamed('x'), description: '🦊'.repeat(2_000) };
    const { tools } = await exportTools([tool], { format: 'openai-responses', strict: false });
    const [exported] = z.array(z.object({ description: z.string() })).parse(tools);
    expect(exported?.description.length).toBeLessThanOrEqual(1_024);
    expect(exported?.description).toMatch(/^(🦊)+…$/u);
  });

  test('for Anthropic have an object at the top', async () => {
    const { tools } = await exportTools(TOOLS, { format: 'anthropic', strict: false });
    for (const tool of z
      .array(z.object({ input_schema: z.looseObject({ type: z.string() }) }))
      .parse(tools)) {
      expect(tool.input_schema.type).toBe('object');
      for (const word of ['oneOf', 'anyOf', 'allOf']) expect(tool.input_schema).not.toHaveProperty(word);
    }
  });

  test('for Gemini are one tool with all functions, without words that it does not know', async () => {
    const { tools } = await exportTools(TOOLS, { format: 'gemini', strict: false });
    expect(tools).toMatchObject([
      { functionDeclarations: TOOLS.map(() => ({ name: expect.stringMatching(/^[a-zA-Z_][\w-]*$/) })) },
    ]);
    expect(JSON.stringify(tools)).not.toMatch(/"(const|default|\$schema|minLength|pattern)":/);
  });

  test('for MCP keep a schema that has no alternatives at its top', async () => {
    const { tools } = await exportTools(TOOLS, { format: 'mcp', strict: false });
    expect(tools?.[2]).toMatchObject({
      inputSchema: TREE_SCHEMA,
      annotations: { readOnlyHint: true, destructiveHint: false, idempotentHint: true, openWorldHint: true },
    });
    expect(tools?.[1]).toMatchObject({ inputSchema: { required: ['operation', 'path'] } });
  });

  test('in TypeScript have alternatives as a union, and nothing that ends a comment', async () => {
    const tool = { ...toolNamed('file', FILE_SCHEMA), description: 'Ends */ here;\nlet x = 1' };
    const { declarations } = await exportTools([tool], { format: 'typescript', strict: false });
    expect(declarations).toContain('/** Ends * / here; let x = 1 */\ndeclare function file(args: {');
    expect(declarations).toContain('operation: "write";');
    expect(declarations).toContain('encoding?: "utf-8" | "base64";');
  });

  test('in TypeScript end at a definition inside itself', async () => {
    const { declarations } = await exportTools([toolNamed('tree', TREE_SCHEMA)], {
      format: 'typescript',
      strict: false,
    });
    expect(declarations).toContain('children?: Array<unknown>;');
  });

  test('in Python are functions with named parameters, and nothing that ends a docstring', async () => {
    const tool = { ...toolNamed('fetch', FETCH_SCHEMA), description: 'Ends """ here\\' };
    const { declarations } = await exportTools([tool], { format: 'python', strict: false });
    expect(declarations).toContain(
      'def fetch(*, url: str, n: int | None = None, o: dict[str, Any] | None = None) -> ToolResult:',
    );
    expect(declarations).toContain("Ends ''' here\\\\");
  });

  test('in Python take names that are none as one parameter', async () => {
    const schema = { type: 'object', properties: { 'content-type': { type: 'string' } } };
    const { declarations } = await exportTools([toolNamed('x', schema)], { format: 'python', strict: false });
    expect(declarations).toContain('def x(arguments: dict[str, Any]) -> ToolResult:');
  });
});

describe('GET /v1/tools', () => {
  const alice = (scope?: string) => tokenOf({ claims: scope === undefined ? {} : { scope } });

  test.each(TOOL_FORMATS)('gives the caller’s tools as %s', async (format) => {
    const answer = await api('GET', `/v1/tools?format=${format}`, { token: await alice('tools:python') });
    expect(answer.status).toBe(200);
    expect(answer.json).toMatchObject({ format, names: {} });
    expect(answer.text).toContain('python');
    for (const hidden of ['shell', 'operation']) expect(answer.text).not.toContain(hidden);
  });

  test('without a format is as it was', async () => {
    const answer = await api('GET', '/v1/tools', { token: await alice() });
    const { tools } = z.object({ tools: z.array(z.record(z.string(), z.unknown())) }).parse(answer.json);
    expect(tools.map(({ name }) => name)).toEqual(ToolNameSchema.options);
    expect(tools[0]).toMatchObject({ name: 'python', category: 'code', input_schema: { type: 'object' } });
    expect(tools.find(({ name }) => name === 'file')).toMatchObject({
      name: 'file',
      category: 'files',
      input_schema: { type: 'object', oneOf: expect.any(Array) },
    });
  });

  test.each([
    ['?format=xml', 'query.format'],
    ['?format=', 'query.format'],
    ['?format=anthropic&strict=true', 'query.strict'],
    ['?strict=true', 'query.strict'],
    ['?format=openai&strict=yes', 'query.strict'],
  ])('refuses %s', async (query, path) => {
    const answer = await api('GET', `/v1/tools${query}`, { token: await alice() });
    expect(problemIn(answer)).toMatchObject({ status: 400, violations: [{ path }] });
  });
});
