/** The calls in an assistant's message, as the model API gave it. Nothing else of the message is read. */
import * as z from 'zod';
import { checkValue, invalid } from '../middleware/body.ts';

export type MessageFormat = 'openai' | 'openai-responses' | 'anthropic';

export interface RequestedCall {
  id: string;
  /** Empty where the model gave none. */
  name: string;
  /** Text, an object or nothing, as it came. */
  arguments: unknown;
  /** Code that the model API runs says that it is the caller. */
  caller?: { type: string } | null | undefined;
}

export interface RequestedCalls {
  format: MessageFormat;
  calls: RequestedCall[];
}

/** As many as wait in a session. */
const MAX_CALLS = 64;
const MAX_BLOCKS = 1_024;

const IdSchema = z.string().min(1).max(256);
const NameSchema = z
  .string()
  .nullish()
  .transform((name) => name ?? '');

const ChatCallSchema = z.looseObject({
  id: IdSchema,
  function: z.looseObject({ name: NameSchema, arguments: z.unknown() }).optional(),
});
const CallerSchema = z.looseObject({ type: z.string().max(64) }).nullish();
const ResponsesCallSchema = z.looseObject({
  call_id: IdSchema,
  name: NameSchema,
  arguments: z.unknown(),
  caller: CallerSchema,
});
const AnthropicCallSchema = z.looseObject({
  id: IdSchema,
  name: NameSchema,
  input: z.unknown(),
  caller: CallerSchema,
});

const BlocksSchema = z.array(z.looseObject({ type: z.string() })).max(MAX_BLOCKS);

export const AssistantMessageSchema = z.looseObject({
  role: z.string().optional(),
  tool_calls: z.array(ChatCallSchema).nullish().describe('OpenAI chat: the calls.'),
  content: z
    .union([z.string(), BlocksSchema])
    .nullish()
    .describe('Anthropic: blocks, of which `tool_use` are the calls.'),
  output: BlocksSchema.nullish().describe('OpenAI responses: items, of which `function_call` are the calls.'),
});
export type AssistantMessage = z.infer<typeof AssistantMessageSchema>;

/** Refuses a message in which calls cannot be told apart, before any of them runs. */
export function requestedCalls(message: AssistantMessage, root: string): RequestedCalls {
  const { calls, path, ...rest } = read(message, root);
  if (calls.length > MAX_CALLS) throw invalid([{ path, expected: `at most ${MAX_CALLS} calls` }]);
  const seen = new Set<string>();
  for (const { id } of calls) {
    if (seen.has(id)) {
      throw invalid([{ path, expected: `an id of its own for each call, not ${JSON.stringify(id)} twice` }]);
    }
    seen.add(id);
  }
  return { ...rest, calls };
}

function read(message: AssistantMessage, root: string): RequestedCalls & { path: string } {
  const { tool_calls, content, output, role } = message;
  if (Array.isArray(tool_calls)) {
    const calls = tool_calls.map((call) => ({
      id: call.id,
      name: call.function?.name ?? '',
      arguments: call.function?.arguments,
    }));
    return { format: 'openai', calls, path: `${root}.tool_calls` };
  }
  if (Array.isArray(output)) {
    const calls = blocksOf(output, 'function_call', ResponsesCallSchema, `${root}.output`).map((item) => ({
      ...item,
      id: item.call_id,
    }));
    return { format: 'openai-responses', calls, path: `${root}.output` };
  }
  if (Array.isArray(content)) {
    const calls = blocksOf(content, 'tool_use', AnthropicCallSchema, `${root}.content`).map((block) => ({
      ...block,
      arguments: block.input,
    }));
    return { format: 'anthropic', calls, path: `${root}.content` };
  }
  // The last message of a conversation has nothing to run.
  if (role === 'assistant') return { format: 'openai', calls: [], path: root };
  throw invalid([
    { path: root, expected: "an assistant's message with tool_calls, content blocks or output items" },
  ]);
}

function blocksOf<T>(
  blocks: z.infer<typeof BlocksSchema>,
  type: string,
  schema: z.ZodType<T>,
  path: string,
): T[] {
  return blocks.flatMap((block, index) =>
    block.type === type ? [checkValue(block, schema, `${path}.${index}`)] : [],
  );
}
