/**
 * Tools and questions by others, from clones of two public repositories: the Berkeley Function-Calling Leaderboard
 * (ShishirPatil/gorilla, with the API Zoo as more tools to look through) and Seal-Tools (fairyshine/Seal-Tools).
 */
import { glob, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import * as z from 'zod';
import { parametersText } from '../worker/tools/parameters-text.ts';

export interface BenchTool {
  id: string;
  name: string;
  description: string;
  category: string;
  parameters: string;
}

export interface BenchQuestion {
  text: string;
  /** Ids of the tools that answer it. */
  expected: string[];
}

export interface ToolData {
  name: string;
  tools: BenchTool[];
  questions: BenchQuestion[];
}

const ParametersSchema = z.record(z.string(), z.unknown());

/** The text that the gateway makes of a schema: both sides search in the same. */
function textOfProperties(properties: unknown): string {
  return parametersText({ type: 'object', properties });
}

async function jsonLines<T>(path: string, schema: z.ZodType<T>): Promise<T[]> {
  const text = await readFile(path, 'utf8');
  return text.split('\n').flatMap((line) => {
    if (line.trim() === '') return [];
    const parsed = schema.safeParse(JSON.parse(line));
    return parsed.success ? [parsed.data] : [];
  });
}

const FunctionSchema = z.object({
  name: z.string(),
  description: z.string(),
  parameters: z.object({ properties: ParametersSchema.optional() }).optional(),
});
const QuestionSchema = z.object({
  id: z.string(),
  question: z.array(z.array(z.object({ role: z.string(), content: z.string() }))),
  function: z.array(FunctionSchema),
});
const AnswerSchema = z.object({ id: z.string(), ground_truth: z.array(ParametersSchema) });

/** Questions with one turn and an answer. Functions of one name and text are one tool. */
export async function functionCallingData(folder: string): Promise<ToolData> {
  const data = join(folder, 'berkeley-function-call-leaderboard/bfcl_eval/data');
  const tools = new Map<string, BenchTool>();
  const questions: BenchQuestion[] = [];
  for await (const file of glob('BFCL_*_{live_,}{simple,multiple,parallel,parallel_multiple}*.json', {
    cwd: data,
  })) {
    const answers = new Map(
      (await jsonLines(join(data, 'possible_answer', file), AnswerSchema)).map(({ id, ground_truth }) => [
        id,
        ground_truth.flatMap((call) => Object.keys(call)),
      ]),
    );
    for (const { id, question, function: functions } of await jsonLines(join(data, file), QuestionSchema)) {
      const idByName = new Map<string, string>();
      for (const { name, description, parameters } of functions) {
        const key = `${name}\n${description}`;
        tools.set(key, {
          id: key,
          name,
          description,
          category: '',
          parameters: textOfProperties(parameters?.properties),
        });
        idByName.set(name, key);
      }
      const expected = (answers.get(id) ?? []).flatMap((name) => idByName.get(name) ?? []);
      const text = question[0]
        ?.filter(({ role }) => role === 'user')
        .map(({ content }) => content)
        .join('\n');
      if (expected.length > 0 && text !== undefined)
        questions.push({ text, expected: [...new Set(expected)] });
    }
  }
  return { name: 'BFCL v4', tools: [...tools.values()], questions };
}

const SealToolSchema = z.object({
  api_name: z.string(),
  api_description: z.string(),
  field: z.string(),
  parameters: ParametersSchema,
});
const SealQuestionSchema = z.object({ query: z.string(), calling: z.array(z.object({ api: z.string() })) });

export async function sealToolsData(folder: string): Promise<ToolData> {
  const data = join(folder, 'Seal-Tools_Dataset');
  const tools = (await jsonLines(join(data, 'tool.jsonl'), SealToolSchema)).map((tool) => ({
    id: tool.api_name,
    name: tool.api_name,
    description: tool.api_description,
    category: tool.field,
    parameters: textOfProperties(tool.parameters),
  }));
  const files = ['test_in_domain.jsonl', 'test_out_domain.jsonl'];
  const found = await Promise.all(files.map((file) => jsonLines(join(data, file), SealQuestionSchema)));
  const questions = found.flat().map(({ query, calling }) => ({
    text: query,
    expected: [...new Set(calling.map(({ api }) => api))],
  }));
  return { name: 'Seal-Tools', tools, questions };
}

const ZooSchema = z.array(
  z.looseObject({
    api_name: z.string().optional(),
    api_call: z.string().optional(),
    functionality: z.string().optional(),
    description: z.string().optional(),
    api_arguments: z.unknown().optional(),
  }),
);

/** More tools that nobody asks for. */
export async function furtherTools(folder: string): Promise<BenchTool[]> {
  const found = new Map<string, BenchTool>();
  for await (const file of glob('data/apizoo/*.json', { cwd: folder })) {
    const parsed = ZooSchema.safeParse(parsedJson(await readFile(join(folder, file), 'utf8')));
    for (const tool of parsed.data ?? []) {
      const name = (tool.api_call ?? tool.api_name ?? '').split('(')[0] ?? '';
      const description = tool.description ?? tool.functionality ?? '';
      if (name === '' || description === '') continue;
      found.set(`${name}\n${description}`, {
        id: `${name}\n${description}`,
        name,
        description,
        category: '',
        parameters: '',
      });
    }
  }
  return [...found.values()];
}

const VERBS = 'create read update delete list search send convert count compare archive export'.split(' ');
const NOUNS =
  'invoice flight recipe contact calendar file image song route price ticket user report order'.split(' ');
const PLACES = 'office warehouse cloud phone library factory school garden harbour market'.split(' ');

/** Tools and questions that only look like some. */
export function madeData(count: number): ToolData {
  const wordAt = (words: readonly string[], at: number) => words[at % words.length] ?? '';
  const tools = Array.from({ length: count }, (_, n) => {
    const [verb, noun] = [wordAt(VERBS, n), wordAt(NOUNS, Math.floor(n / VERBS.length))];
    const place = wordAt(PLACES, Math.floor(n / (VERBS.length * NOUNS.length)));
    return {
      id: String(n),
      name: `${verb}_${noun}_${place}_${n}`,
      description: `${verb} one ${noun} of the ${place}, number ${n}`,
      category: noun,
      parameters: `${noun}_id which ${noun}\n${place} where it is`,
    };
  });
  const questions = tools.map(({ id, description }) => ({ text: `please ${description}`, expected: [id] }));
  return { name: 'made', tools, questions };
}

function parsedJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
