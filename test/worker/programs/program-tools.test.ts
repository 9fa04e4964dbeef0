import { expect, test } from 'vitest';
import { declarationsOf, programTool } from '../../../worker/programs/program-tools.ts';
import type { ToolDefinition } from '../../../worker/tools/definition.ts';

const WEATHER: ToolDefinition = {
  name: 'weather.get',
  title: 'Weather',
  description: 'Gets the\nweather */ "now"',
  category: 'general',
  inputSchema: {
    type: 'object',
    properties: {
      city: { type: 'string', description: 'Where.' },
      unit: { enum: ['c', 'f'] },
      days: { type: ['integer', 'null'] },
    },
    required: ['city'],
  },
  outputSchema: { type: 'object', properties: { degrees: { type: 'number' } }, required: ['degrees'] },
  effects: { readOnly: true, destructive: false, idempotent: false, openWorld: true },
};

test('a function in Python has its parameters, their types and what it is for', async () => {
  const tool = await programTool(WEATHER, 'python');
  expect(tool).toEqual({
    name: 'weather.get',
    path: ['weather', 'get'],
    documentation:
      'tools.weather.get(*, city: str, unit: Literal["c", "f"] | None = None, days: int | None = None) -> dict[str, Any]\n' +
      'Gets the weather */ "now"\n    city: Where.',
    parameters: [
      { name: 'city', type: 'str', required: true },
      { name: 'unit', type: 'Literal["c", "f"]', required: false },
      { name: 'days', type: 'int | None', required: false },
    ],
    returns: 'dict[str, Any]',
  });
});

test('a function whose parameters are no names of Python takes them in one dict', async () => {
  const inputSchema = { type: 'object', properties: { 'a-b': {} } };
  expect(await programTool({ ...WEATHER, inputSchema }, 'python')).toMatchObject({
    parameters: null,
    documentation: expect.stringContaining('tools.weather.get(arguments: dict[str, Any])'),
  });
});

test('a function in JavaScript is declared in TypeScript', async () => {
  const tool = await programTool(WEATHER, 'javascript');
  expect(declarationsOf([tool, tool])).toContain(
    '/** Gets the weather * / "now" */\ntools.weather.get(args: {',
  );
  expect(tool.documentation).toContain('unit?: "c" | "f";');
  expect(tool.documentation).toMatch(/\): Promise<\{\n {2}degrees: number;\n\}>$/);
});
