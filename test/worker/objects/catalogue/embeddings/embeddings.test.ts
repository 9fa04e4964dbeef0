import { runInDurableObject } from 'cloudflare:test';
import { env } from 'cloudflare:workers';
import { expect, test } from 'vitest';
import { EmbeddingSettingsSchema } from '../../../../../worker/embeddings/settings.ts';
import { ToolEmbeddings } from '../../../../../worker/objects/catalogue/embeddings/embeddings.ts';

/** Tools with these texts, as a model embeds them that says of each text whether it takes it. */
async function withTools(
  texts: Readonly<Record<string, string>>,
  takes: (text: string) => boolean,
  work: (embeddings: ToolEmbeddings) => Promise<void>,
): Promise<void> {
  const stub = env.CATALOGUE.get(env.CATALOGUE.idFromName(crypto.randomUUID()));
  const settings = EmbeddingSettingsSchema.parse({ kind: 'workers-ai', model: '@cf/a/b' });
  if (settings.kind !== 'workers-ai') throw new Error('it is of another kind');
  const run = async (_model: string, { text }: { text: string[] }) => {
    if (!text.every(takes)) throw new Error('a text is refused');
    return { data: text.map(({ length }) => [1, length]) };
  };
  const tools = new Map(
    Object.entries(texts).map(([name, description]) => [
      name,
      { name, title: '', description, category: '', parameters: '' },
    ]),
  );
  await runInDurableObject(stub, async (_object, { storage }) => {
    await work(
      new ToolEmbeddings(storage, { model: async () => ({ settings, ai: { run } }), tools: () => tools }),
    );
  });
}

test('a text that the model never takes holds up the vectors of no others', async () => {
  const good = Array.from({ length: 100 }, (_, n) => [`tool-${n}`, 'good'] as const);
  const texts = { ...Object.fromEntries(good.slice(0, 10)), bad: 'bad', ...Object.fromEntries(good) };
  await withTools(
    texts,
    (text) => !text.includes('bad'),
    async (embeddings) => {
      // As often as the alarm rings in the first quarter of an hour.
      for (let alarm = 0; alarm < 12; alarm += 1) await embeddings.run();
      expect(await embeddings.coverage((name) => name !== 'bad')).toEqual({
        hasVectors: true,
        isWhole: true,
      });
      expect(await embeddings.coverage(() => true)).toEqual({ hasVectors: true, isWhole: false });
    },
  );
});

test('a text that is cut is still text', async () => {
  const cut = '\u{1f600}'.repeat(2_000);
  await withTools(
    { even: cut, odd: cut },
    (text) => text.isWellFormed(),
    async (embeddings) => {
      await embeddings.run();
      expect(await embeddings.coverage(() => true)).toEqual({ hasVectors: true, isWhole: true });
    },
  );
});
