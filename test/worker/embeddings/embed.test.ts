import { describe, expect, test } from 'vitest';
import { embed } from '../../../worker/embeddings/embed.ts';
import { EmbeddingSettingsSchema } from '../../../worker/embeddings/settings.ts';
import { cosineOf, vectorOf } from '../../../worker/embeddings/vector.ts';
import type { WorkersAi } from '../../../worker/workers-ai.ts';

/** Workers AI as its binding is called. */
function workersAi(run: WorkersAi['run'], more: object = {}) {
  const settings = EmbeddingSettingsSchema.parse({ kind: 'workers-ai', model: '@cf/a/b', ...more });
  if (settings.kind !== 'workers-ai') throw new Error('it is of another kind');
  return { settings, ai: { run } };
}

describe('Workers AI', () => {
  test('is asked for all texts at once, by the name of the model', async () => {
    const asked: unknown[] = [];
    const model = workersAi(async (...call) => {
      asked.push(call);
      return {
        shape: [2, 2],
        data: [
          [1, 0],
          [0, 2],
        ],
      };
    });
    const answer = await embed(model, ['one', 'two'], 1_000);
    expect(asked).toEqual([['@cf/a/b', { text: ['one', 'two'] }]]);
    expect(answer.ok && answer.vectors.map(({ values }) => [...values])).toEqual([
      [127, 0],
      [0, 127],
    ]);
  });

  test.each<[string, unknown]>([
    ['nothing', undefined],
    ['text', { data: [['1', '2']] }],
    ['a number that is none', { data: [[Number.NaN, 1]] }],
    ['no vector', { data: [] }],
    [
      'more vectors than texts',
      {
        data: [
          [1, 0],
          [0, 1],
        ],
      },
    ],
    ['a vector of zeros', { data: [[0, 0]] }],
    ['a vector without numbers', { data: [[]] }],
    ['another size than was asked for', { data: [[1, 0, 0]] }],
  ])('that answers %s has failed', async (_, answer) => {
    const model = workersAi(async () => answer, { dimensions: 2 });
    expect(await embed(model, ['one'], 1_000)).toMatchObject({ ok: false, reason: 'failed' });
  });

  test('that throws has failed, and what it says is not passed on', async () => {
    const model = workersAi(async () => {
      throw new Error('quota of account 123');
    });
    const answer = await embed(model, ['one'], 1_000);
    expect(answer).toEqual({ ok: false, reason: 'failed', detail: 'it could not be asked' });
  });

  test('that never answers is slow', async () => {
    const model = workersAi(() => new Promise(() => undefined));
    expect(await embed(model, ['one'], 20)).toMatchObject({ ok: false, reason: 'slow' });
  });
});

describe('a vector', () => {
  test('in bytes is as like others as it was in numbers', () => {
    const numbers = (seed: number) =>
      Array.from({ length: 384 }, (_, at) => Math.sin(seed * (at + 1) ** 1.1));
    const exact = (one: number[], other: number[]) => {
      const product = (a: number[], b: number[]) => a.reduce((sum, x, at) => sum + x * (b[at] ?? 0), 0);
      return product(one, other) / Math.sqrt(product(one, one) * product(other, other));
    };
    for (const [one, other] of [
      [1, 1],
      [1, 1.001],
      [1, 1.01],
      [1, 2],
      [3, 7],
    ] as const) {
      const vectors = [vectorOf(numbers(one)), vectorOf(numbers(other))];
      const [left, right] = vectors;
      if (left === undefined || right === undefined) throw new Error('a vector points nowhere');
      expect(Math.abs(cosineOf(left, right) - exact(numbers(one), numbers(other)))).toBeLessThan(0.01);
    }
  });

  test('of nothing but zeros is none', () => {
    expect(vectorOf([0, 0])).toBeUndefined();
  });
});
