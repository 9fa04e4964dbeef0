/** The messages to append to a conversation, one answer for each call, in the order of the calls. */
import type { RichResult } from '../../shared/execution.ts';
import type { MessageFormat, RequestedCall } from './requested-calls.ts';

export interface CallAnswer {
  id: string;
  text: string;
  images: RichResult[];
  isError: boolean;
  /** As the call said it. */
  caller: RequestedCall['caller'];
}

type AnthropicBlock =
  | { type: 'text'; text: string }
  | { type: 'image'; source: { type: 'base64'; media_type: string; data: string } };

export type AppendedMessage =
  | { role: 'tool'; tool_call_id: string; content: string }
  | { type: 'function_call_output'; call_id: string; output: string; caller?: { type: string } }
  | {
      role: 'user';
      content: {
        type: 'tool_result';
        tool_use_id: string;
        content: string | AnthropicBlock[];
        is_error?: true;
      }[];
    };

export function messagesOf(format: MessageFormat, answers: readonly CallAnswer[]): AppendedMessage[] {
  switch (format) {
    case 'openai':
      return answers.map(({ id, text }) => ({ role: 'tool', tool_call_id: id, content: text }));
    case 'openai-responses':
      return answers.map(({ id, text, caller }) => ({
        type: 'function_call_output',
        call_id: id,
        output: text,
        // A program of that API finds its answer by it.
        ...(caller === null || caller === undefined || caller.type === 'direct' ? {} : { caller }),
      }));
    case 'anthropic':
      // The API wants all results of a message in the one message that follows it.
      return answers.length === 0 ? [] : [{ role: 'user', content: answers.map(toolResult) }];
  }
}

function toolResult({ id, text, images, isError }: CallAnswer) {
  return {
    type: 'tool_result' as const,
    tool_use_id: id,
    content: images.length === 0 ? text : [{ type: 'text' as const, text }, ...images.map(imageBlock)],
    ...(isError ? { is_error: true as const } : {}),
  };
}

function imageBlock({ mime, data }: RichResult): AnthropicBlock {
  return { type: 'image', source: { type: 'base64', media_type: mime, data } };
}
