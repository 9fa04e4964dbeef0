/** What an MCP server answers to a call, as the outcome of an execution. */
import type { CallToolResult } from '@modelcontextprotocol/client';
import { utf8 } from '../../../shared/encoding.ts';
import type { RichResult } from '../../../shared/execution.ts';
import { MAX_RESULT_PARTS_BYTES, MAX_VALUE_BYTES } from '../../../shared/limits.ts';
import { type EdgeOutcome, edgeEnd, edgeFailure } from '../../tools/edge-execution.ts';
import { inexactPlace } from './exact-message.ts';

const MAX_MESSAGE_CHARACTERS = 2_000;

export function edgeOutcomeOf(result: CallToolResult): EdgeOutcome {
  const texts: string[] = [];
  const results: RichResult[] = [];
  for (const block of result.content) {
    switch (block.type) {
      case 'text':
        texts.push(block.text);
        break;
      case 'image':
      case 'audio':
        results.push({ mime: block.mimeType, data: block.data });
        break;
      case 'resource_link':
        texts.push(`${block.name}: ${block.uri}`);
        break;
      case 'resource':
        if ('text' in block.resource) texts.push(block.resource.text);
        else results.push({ mime: block.resource.mimeType ?? BYTES, data: block.resource.blob });
        break;
    }
  }
  const place = inexactPlace(result);
  const structured = place === undefined ? (result.structuredContent ?? null) : null;
  const text = texts.join('\n');
  if (tooLarge(text, structured, results)) return edgeFailure('AnswerTooLarge', 'the answer is too large');
  if (place !== undefined) {
    const message = `${place}: expected numbers that a double holds exactly (integers within ±(2^53 - 1)), or text`;
    return { ...edgeFailure('InexactNumber', message), text, results };
  }
  // A server repeats its data as text for clients that know no other; here it would be given twice.
  const shown = structured !== null && isTextOf(text, structured) ? '' : text;
  if (result.isError !== true) return { ...edgeEnd('succeeded'), text: shown, structured, results };
  const message = text.slice(0, MAX_MESSAGE_CHARACTERS);
  return { ...edgeFailure('ToolError', message), text: shown, structured, results };
}

const BYTES = 'application/octet-stream';

function tooLarge(text: string, structured: unknown, results: readonly RichResult[]): boolean {
  const partsBytes = results.reduce((sum, { data }) => sum + data.length, 0);
  if (partsBytes > MAX_RESULT_PARTS_BYTES) return true;
  return utf8(text).length + JSON.stringify(structured).length > 2 * MAX_VALUE_BYTES;
}

function isTextOf(text: string, structured: unknown): boolean {
  try {
    return JSON.stringify(JSON.parse(text)) === JSON.stringify(structured);
  } catch {
    return false;
  }
}
