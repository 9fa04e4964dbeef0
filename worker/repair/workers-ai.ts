/** A question to a model of Workers AI, as a call that the gateway makes: kept in the session, with a receipt, as any other. */
import * as z from 'zod';
import type { RepairModels } from '../configuration.ts';
import { type EdgeOutcome, edgeEnd, edgeFailure } from '../tools/edge-execution.ts';
import { type EdgePerformance, edgePerformance } from '../tools/performance.ts';
import type { Question } from './prompt.ts';

/** No registered tool has this name. */
const TOOL = { name: 'workers_ai', version: '1' };
/** What a tool policy leaves out or in. */
export const WORKERS_AI_GUARD = { name: TOOL.name, category: 'models' };

/** Most of its models answer so; some answer with a chat completion, as others do. */
const AnswerSchema = z.union([
  z.object({ response: z.string() }).transform(({ response }) => response),
  z
    .object({ choices: z.array(z.object({ message: z.object({ content: z.string() }) })).min(1) })
    .transform(({ choices }) => choices[0]?.message.content ?? ''),
]);

export function workersAiPerformance(
  context: { receivedMs: number },
  { ai }: Pick<RepairModels, 'ai'>,
  { question, timeoutMs }: { question: Question; timeoutMs: number },
): EdgePerformance {
  const { model, ...input } = question;
  const call = { arguments: { ...question }, timeout_ms: timeoutMs };
  return edgePerformance(context, { tool: TOOL, call }, async (_, signal) => {
    const deadline = AbortSignal.timeout(timeoutMs);
    try {
      const answered = await Promise.race([ai.run(model, input), endOf(deadline), endOf(signal)]);
      return outcomeOf(answered);
    } catch {
      if (deadline.aborted) return edgeEnd('timeout');
      if (signal.aborted) return edgeEnd('interrupted');
      // Its words may be about the account.
      return edgeFailure('ModelFailed', 'Workers AI did not answer');
    }
  });
}

/** As a chat completion, whichever way the model answers. */
function outcomeOf(answered: unknown): EdgeOutcome {
  const answer = AnswerSchema.safeParse(answered);
  const structured = answer.success ? { choices: [{ message: { content: answer.data } }] } : {};
  return { ...edgeEnd('succeeded'), structured };
}

/** For what takes no signal. */
function endOf(signal: AbortSignal): Promise<never> {
  return new Promise((_, reject) => {
    signal.addEventListener('abort', () => reject(new Error('the time is over')), { once: true });
  });
}
