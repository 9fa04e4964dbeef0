/** An execution as the result of an MCP call: text for the model, the images, and the facts as data. */
import type { CallToolResult } from '@modelcontextprotocol/server';
import * as z from 'zod';
import type { Failure } from '../../shared/errors.ts';
import { type Execution, ExecutionSchema } from '../../shared/execution.ts';
import { isSchema } from '../formats/json-schema.ts';
import { clip } from '../rendering/clip.ts';
import { DEFAULT_MAX_CHARACTERS, executionText } from '../rendering/execution-text.ts';
import { failureText } from '../rendering/failure-text.ts';
import { imagesOf, soundsOf } from '../rendering/images.ts';
import type { JsonSchema, ToolDefinition } from '../tools/definition.ts';

/** An execution within what a model's context can hold: no receipt, clipped texts, results by kind and size. */
export const ExecutionContentSchema = ExecutionSchema.pick({
  execution_id: true,
  session_id: true,
  tool_name: true,
  status: true,
  exit_code: true,
  signal: true,
  stdout: true,
  stderr: true,
  truncated: true,
  stdout_bytes: true,
  stderr_bytes: true,
  value: true,
  structured: true,
  error: true,
  reason: true,
  state_lost: true,
  rolled_back: true,
  started_at: true,
  finished_at: true,
  duration_ms: true,
}).extend({
  /** The session ended with the call: nothing more of it can be read. */
  session_ended: z.boolean(),
  results: z.array(z.object({ mime: z.string(), characters: z.int() })),
});
type ExecutionContent = z.infer<typeof ExecutionContentSchema>;

export type ResultForm = 'execution' | 'structured';

/** In the form that the tool was listed with. */
export function callResult(
  execution: Execution,
  { form, ownSession }: { form: ResultForm; ownSession: boolean },
): CallToolResult {
  const about = { sessionEnded: ownSession };
  return form === 'execution' ? executionResult(execution, about) : structuredResult(execution, about);
}

export function executionResult(
  execution: Execution,
  { sessionEnded }: { sessionEnded: boolean },
): CallToolResult {
  return {
    content: [
      { type: 'text', text: executionText(execution, DEFAULT_MAX_CHARACTERS, { isKept: !sessionEnded }) },
      ...imagesOf(execution.results).map(({ mime, data }) => ({
        type: 'image' as const,
        mimeType: mime,
        data,
      })),
      ...soundsOf(execution.results).map(({ mime, data }) => ({
        type: 'audio' as const,
        mimeType: mime,
        data,
      })),
    ],
    structuredContent: { ...contentOf(execution, sessionEnded) },
    isError: execution.status !== 'succeeded',
  };
}

export function formOf(tool: ToolDefinition): ResultForm {
  return ownOutput(tool) === undefined ? 'execution' : 'structured';
}

/** A tool that says what it gives gives that, and nothing around it. */
export function ownOutput({
  outputSchema: own,
}: ToolDefinition): (JsonSchema & { type: 'object' }) | undefined {
  return own?.type === 'object' ? { ...own, type: 'object' } : undefined;
}

/** What the tool gave, as its own schema has it; the execution itself is in the text where it failed. */
function structuredResult(execution: Execution, about: { sessionEnded: boolean }): CallToolResult {
  const { structuredContent: _, ...result } = executionResult(execution, about);
  const { structured, status } = execution;
  return status === 'succeeded' && isSchema(structured)
    ? { ...result, structuredContent: { ...structured } }
    : result;
}

export function failureResult(failure: Failure): CallToolResult {
  return { content: [{ type: 'text', text: failureText(failure) }], isError: true };
}

function contentOf(execution: Execution, sessionEnded: boolean): ExecutionContent {
  const { stdout, stderr, value, results, truncated } = execution;
  const structured = execution.structured ?? null;
  const texts = {
    stdout: clip(stdout, DEFAULT_MAX_CHARACTERS),
    stderr: clip(stderr, DEFAULT_MAX_CHARACTERS),
    value: value === null ? null : clip(value, DEFAULT_MAX_CHARACTERS),
    structured: bounded(structured),
  };
  const isClipped =
    texts.stdout !== stdout ||
    texts.stderr !== stderr ||
    texts.value !== value ||
    texts.structured !== structured;
  // Clients check it against the schema that tools are listed with, which has nothing beside these fields.
  return ExecutionContentSchema.parse({
    ...execution,
    ...texts,
    truncated: truncated || isClipped,
    session_ended: sessionEnded,
    results: results.map(({ mime, data }) => ({ mime, characters: data.length })),
  });
}

/** Data has no middle that could be left out. */
function bounded(structured: unknown): unknown {
  return JSON.stringify(structured).length > DEFAULT_MAX_CHARACTERS ? null : structured;
}
