/** Texts to vectors by a model of others: bounded in time and size, and nothing is taken that is not as asked for. */
import * as z from 'zod';
import { boundedFetch } from '../tools/http/bounded-fetch.ts';
import { type EmbeddingModel, MAX_DIMENSIONS } from './settings.ts';
import { type Vector, vectorOf } from './vector.ts';

const MAX_ANSWER_BYTES = 8 * 1024 * 1024;

export type Embedded =
  | { ok: true; vectors: Vector[] }
  /** `detail` is for the log: it names neither the key nor a text. */
  | { ok: false; reason: 'slow' | 'failed'; detail: string };

const NumbersSchema = z.array(z.number()).min(1).max(MAX_DIMENSIONS);
const OpenAiAnswerSchema = z.object({
  data: z.array(z.object({ index: z.int().min(0).optional(), embedding: NumbersSchema })),
});
const WorkersAiAnswerSchema = z.object({ data: z.array(NumbersSchema) });

/** What the model did wrong, in words of ours. */
class BadAnswer extends Error {
  override name = 'BadAnswer';
}

export async function embed(
  model: EmbeddingModel,
  texts: readonly string[],
  timeoutMs: number,
): Promise<Embedded> {
  const deadline = AbortSignal.timeout(timeoutMs);
  try {
    const answered = await Promise.race([ask(model, texts, deadline), rejectedAt(deadline)]);
    return { ok: true, vectors: vectorsIn(answered, texts.length, model.settings.dimensions) };
  } catch (error: unknown) {
    if (deadline.aborted) return { ok: false, reason: 'slow', detail: `no answer in ${timeoutMs} ms` };
    const detail = error instanceof BadAnswer ? error.message : 'it could not be asked';
    return { ok: false, reason: 'failed', detail };
  }
}

/** For what takes no signal. */
function rejectedAt(signal: AbortSignal): Promise<never> {
  return new Promise((_, reject) => {
    signal.addEventListener('abort', () => reject(new Error('the time is over')), { once: true });
  });
}

async function ask(
  model: EmbeddingModel,
  texts: readonly string[],
  signal: AbortSignal,
): Promise<readonly number[][]> {
  if (!('ai' in model)) return askOpenAi(model, texts, signal);
  const answer = WorkersAiAnswerSchema.safeParse(
    await model.ai.run(model.settings.model, { text: [...texts] }),
  );
  if (!answer.success) throw new BadAnswer('its answer has no vectors');
  return answer.data.data;
}

async function askOpenAi(
  { settings, key, rules }: Exclude<EmbeddingModel, { ai: unknown }>,
  texts: readonly string[],
  signal: AbortSignal,
): Promise<readonly number[][]> {
  const { url, model, dimensions } = settings;
  const response = await boundedFetch(rules, MAX_ANSWER_BYTES)(url, {
    method: 'POST',
    headers: {
      'content-type': 'application/json',
      accept: 'application/json',
      ...(key === undefined ? {} : { authorization: `Bearer ${key}` }),
    },
    body: JSON.stringify({
      model,
      input: texts,
      encoding_format: 'float',
      ...(dimensions === undefined ? {} : { dimensions }),
    }),
    signal,
  });
  if (!response.ok) {
    await response.body?.cancel();
    throw new BadAnswer(`it answered ${response.status}`);
  }
  const answer = OpenAiAnswerSchema.safeParse(await response.json());
  if (!answer.success) throw new BadAnswer('its answer has no vectors');
  return inOrder(answer.data.data);
}

/** Some answer in another order than they were asked. */
function inOrder(data: z.infer<typeof OpenAiAnswerSchema>['data']): number[][] {
  const byIndex = new Map(data.map(({ index, embedding }, at) => [index ?? at, embedding]));
  return data.map((_, at) => {
    const embedding = byIndex.get(at);
    if (embedding === undefined) throw new BadAnswer('its answer leaves a text out');
    return embedding;
  });
}

function vectorsIn(answered: readonly number[][], count: number, dimensions: number | undefined): Vector[] {
  if (answered.length !== count) throw new BadAnswer(`it gave ${answered.length} vectors for ${count} texts`);
  const expected = dimensions ?? answered[0]?.length;
  return answered.map((numbers) => {
    if (numbers.length !== expected) {
      throw new BadAnswer(`it gave ${numbers.length} dimensions where ${expected} were expected`);
    }
    const vector = vectorOf(numbers);
    if (vector === undefined) throw new BadAnswer('it gave a vector of nothing but zeros');
    return vector;
  });
}
