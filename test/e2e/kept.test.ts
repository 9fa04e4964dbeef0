/** What outlives its call or its session: a long output as bytes, and artifacts by signed addresses, on real parts. */
import { createHash } from 'node:crypto';
import { expect, test } from 'vitest';
import { ArtifactSchema, ArtifactUrlSchema } from '../../shared/artifact.ts';
import type { Execution } from '../../shared/execution.ts';
import { INLINE_BYTES, MAX_STORED_OUTPUT_BYTES } from '../../shared/limits.ts';
import { readReceipt } from '../../shared/receipt-verify.ts';
import { useSession, useStack } from './stack.ts';

const MIB = 1024 * 1024;
/** So many bytes take a while where other tests run beside. */
const LONG_MS = 300_000;
const stack = useStack();
const session = useSession(stack);

function signedOf({ receipt }: Execution, stream: 'stdout' | 'stderr') {
  const read = receipt === null ? undefined : readReceipt(receipt);
  if (read?.ok !== true) throw new Error(`no receipt that can be read: ${read?.detail}`);
  return read.value.receipt[stream];
}

test('a program that prints 40 MiB: every byte is kept, in order, with the digest that its receipt signs', {
  timeout: LONG_MS,
}, async () => {
  const lines = (40 * MIB) / 16;
  const result = await session().py(`for n in range(${lines}): print(f'{n:015d}')`, { timeoutMs: LONG_MS });
  expect(result).toMatchObject({ status: 'succeeded', truncated: true, stdout_bytes: 40 * MIB });
  const stored = result.output?.stdout;
  expect(stored).toMatchObject({ bytes: 40 * MIB, stored_bytes: 40 * MIB });
  const { url, token } = stack().api;
  const read = (headers: Record<string, string> = {}) =>
    fetch(`${url}${stored?.url}`, { headers: { authorization: `Bearer ${token}`, ...headers } });
  const bytes = Buffer.from(await (await read()).arrayBuffer());
  expect(createHash('sha256').update(bytes).digest('hex')).toBe(stored?.sha256);
  expect(signedOf(result, 'stdout')).toEqual({ sha256: stored?.sha256, bytes: 40 * MIB, truncated: true });
  for (const n of [0, 70_000, lines - 1]) {
    const range = await read({ range: `bytes=${n * 16}-${n * 16 + 15}` });
    expect([range.status, await range.text()]).toEqual([206, `${String(n).padStart(15, '0')}\n`]);
  }
});

test.each([
  ['stdout', 'than is kept of it', MAX_STORED_OUTPUT_BYTES + MIB],
  ['stderr', 'than its answer has', INLINE_BYTES + MIB],
] as const)(
  'more %s %s is in the receipt to its last byte',
  { timeout: LONG_MS },
  async (stream, _, bytes) => {
    const flood = Buffer.alloc(bytes, 'a line of a flood\n');
    const command = `yes 'a line of a flood' | head -c ${bytes} >&${stream === 'stdout' ? 1 : 2}`;
    const result = await session().sh(command, { timeoutMs: LONG_MS });
    expect(result).toMatchObject({ status: 'succeeded', truncated: true });
    expect(result[stream].length).toBeLessThan(bytes);
    expect(signedOf(result, stream)).toEqual({
      sha256: createHash('sha256').update(flood).digest('hex'),
      bytes,
      truncated: true,
    });
  },
);

test('a file goes in by one signed address, through a program, and out by another, without a token', async () => {
  const { api } = stack();
  const ask = (method: string, path: string, body?: unknown) =>
    fetch(`${api.url}${path}`, {
      method,
      headers: { authorization: `Bearer ${api.token}`, 'content-type': 'application/json' },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
  const address = async (name: string, body: object) => {
    const answer = await ask('POST', `/v1/artifacts/${name}/url`, body);
    return ArtifactUrlSchema.parse(await answer.json()).url;
  };
  const content = Buffer.alloc(3 * MIB + 7, 'words and numbers 0123456789\n');
  const upload = await address('input.txt', { method: 'PUT', max_bytes: content.length });
  const uploaded = await fetch(upload, { method: 'PUT', body: content });
  expect(uploaded.status).toBe(201);
  expect(ArtifactSchema.parse(await uploaded.json()).bytes).toBe(content.length);
  expect((await fetch(upload, { method: 'PUT', body: 'once more' })).status).toBe(404);

  const base = `/v1/sessions/${session().id}`;
  const into = await ask('POST', `${base}/files-from`, { artifact: 'input.txt', path: 'in/input.txt' });
  expect(into.status, await into.text()).toBe(201);
  const ran = await session().sh("mkdir -p out && tr 'a-z' 'A-Z' < in/input.txt > out/result.txt");
  expect(ran.status).toBe('succeeded');
  const kept = await ask('POST', `${base}/artifacts`, { path: 'out/result.txt' });
  expect(kept.status).toBe(201);
  const wanted = Buffer.from(content.toString().toUpperCase());
  expect(ArtifactSchema.parse(await kept.json())).toMatchObject({
    bytes: wanted.length,
    sha256: createHash('sha256').update(wanted).digest('hex'),
  });

  const download = await address('result.txt', { method: 'GET', expires_in_s: 60 });
  const got = await fetch(download);
  expect([got.status, Buffer.from(await got.arrayBuffer()).equals(wanted)]).toEqual([200, true]);
  const changed = `${download.slice(0, -1)}${download.endsWith('A') ? 'B' : 'A'}`;
  expect((await fetch(changed)).status).toBe(404);
});
