/** What a tool gave, wrapped as XAgent's clients unwrap it. */
import type { Execution, RichResult } from '../../../shared/execution.ts';
import { isSchema } from '../../formats/json-schema.ts';
import { DEFAULT_MAX_CHARACTERS, executionText } from '../../rendering/execution-text.ts';
import { imagesOf } from '../../rendering/images.ts';
import { detailReply } from '../adapter-route.ts';

const WRAPPED: readonly unknown[] = ['simple', 'composite', 'binary'];
const FAILED = 500;
const TIMED_OUT = 450;

/** Objects are wrapped, unless a tool wrapped its answer itself; everything else stands for itself. */
export function wrapped(value: unknown): unknown {
  if (!isSchema(value) || (WRAPPED.includes(value.type) && 'data' in value)) return value;
  return { type: 'simple', data: value };
}

/** Text, or where there are images the text and each of them under a name to save it by. */
export function textAndImages(execution: Execution): unknown {
  const text = executionText(execution, DEFAULT_MAX_CHARACTERS);
  const images = imagesOf(execution.results);
  return images.length === 0 ? text : { type: 'composite', data: [text, ...images.map(binary)] };
}

function binary({ mime, data }: RichResult, index: number) {
  const ending = mime.slice(mime.indexOf('/') + 1);
  return { type: 'binary', media_type: mime, name: `result-${index + 1}.${ending}`, data };
}

/** Undefined for a call that succeeded. */
export function failedReply(execution: Execution): Response | undefined {
  if (execution.status === 'succeeded') return undefined;
  return detailReply(
    execution.status === 'timeout' ? TIMED_OUT : FAILED,
    executionText(execution, DEFAULT_MAX_CHARACTERS),
  );
}
