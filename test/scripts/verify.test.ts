import { execFile } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { Envelope } from '../../shared/dsse.ts';
import { makeEdgeChain } from '../shared/edge-receipt-fixture.ts';
import {
  makeChain,
  makeSealed,
  makeWorld,
  newTestSessionId,
  type TestWorld,
} from '../shared/receipt-fixture.ts';

const script = fileURLToPath(new URL('../../scripts/verify.ts', import.meta.url));
let world: TestWorld;
let chain: Envelope[];
let folder: string;

beforeAll(async () => {
  world = await makeWorld();
  chain = await makeChain(world, 5);
  folder = await mkdtemp(join(tmpdir(), 'sandgate-verify-'));
});
afterAll(() => rm(folder, { recursive: true, force: true }));

async function part(from: number, to: number, more: object = {}): Promise<string> {
  const file = join(folder, `${from}-${to}-${Object.keys(more).join('-')}.json`);
  const { sessionId: session_id, keys } = world;
  const next_after = to < chain.length ? to : null;
  await writeFile(
    file,
    JSON.stringify({ session_id, receipts: chain.slice(from, to), keys, next_after, ...more }),
  );
  return file;
}

function verify(...args: string[]): Promise<{ exitCode: number; output: string }> {
  return new Promise((resolve) => {
    const child = execFile(process.execPath, [script, ...args], (_error, stdout, stderr) => {
      resolve({ exitCode: child.exitCode ?? -1, output: stdout + stderr });
    });
  });
}

describe('the verifier', () => {
  test('takes a whole chain as one file, also without a word on more', async () => {
    for (const file of [await part(0, 5), await part(0, 5, { next_after: undefined })]) {
      expect(await verify(file)).toMatchObject({ exitCode: 0 });
      expect((await verify(file)).output).toContain('chain of 5 receipts');
    }
  });

  test('shows what a receipt says of the answer and of the clock of its host', async () => {
    const sha256 = 'a'.repeat(64);
    const receipt = await makeSealed(world, {
      artifacts: [{ path: 'results/0', sha256, bytes: 5_120 }],
      clock_ahead_ms: -61_000,
    });
    const files = [join(folder, 'receipt.json'), join(folder, 'keys.json')] as const;
    await writeFile(files[0], JSON.stringify(receipt));
    await writeFile(files[1], JSON.stringify(world.keys));
    const { exitCode, output } = await verify(files[0], '--keys', files[1]);
    expect(exitCode, output).toBe(0);
    expect(output).toContain(`results/0  5120 bytes  sha256:${sha256}`);
    expect(output).toContain('the clock of its host was -61000 ms ahead');
  });

  test('takes the parts of a chain as files in their order', async () => {
    const files = [await part(0, 2), await part(2, 4), await part(4, 5)];
    const verified = await verify(...files);
    expect(verified).toMatchObject({ exitCode: 0 });
    expect(verified.output).toContain('chain of 5 receipts');
    expect(await verify(...files.toReversed())).toMatchObject({ exitCode: 1 });
  });

  test('takes a first part alone, and does not call it the whole', async () => {
    const verified = await verify(await part(0, 2));
    expect(verified).toMatchObject({ exitCode: 0 });
    expect(verified.output).toContain('more come after 2');
    expect(verified.output).not.toContain('is whole');
  });

  test('refuses a later part alone, and parts with one missing', async () => {
    for (const files of [[await part(2, 4)], [await part(0, 2), await part(4, 5)]]) {
      const verified = await verify(...files);
      expect(verified).toMatchObject({ exitCode: 1 });
      expect(verified.output).toContain('chain_gap');
    }
  });

  test('takes no parts of two sessions, and no files that are none', async () => {
    const foreign = await part(2, 5, { session_id: newTestSessionId() });
    expect(await verify(await part(0, 2), foreign)).toMatchObject({ exitCode: 2 });
    const single = join(folder, 'single.json');
    await writeFile(single, JSON.stringify(chain[0]));
    expect(await verify(await part(0, 2), single)).toMatchObject({ exitCode: 2 });
  });

  test('takes the receipts of the edge beside those of the hosts, and refuses one that does not belong to them', async () => {
    const edge_receipts = await makeEdgeChain(world, 3, chain);
    const verified = await verify(await part(0, 5, { edge_receipts }));
    expect(verified).toMatchObject({ exitCode: 0 });
    expect(verified.output).toContain('chain of 5 receipts of');
    expect(verified.output).toContain('chain of 3 receipts of the edge');
    expect(verified.output).toMatch(/valid {2}edge 1 .* call 1 of exe_/);
    const parts = [
      await part(0, 2, { edge_receipts: edge_receipts.slice(0, 1), next_edge_after: 1 }),
      await part(2, 5, { edge_receipts: edge_receipts.slice(1), last: true }),
    ];
    expect(await verify(...parts)).toMatchObject({ exitCode: 0 });
    const foreign = await makeEdgeChain(world, 3, await makeChain(world, 5));
    const refused = await verify(await part(0, 5, { edge_receipts: foreign, foreign: true }));
    expect(refused).toMatchObject({ exitCode: 1 });
    expect(refused.output).toContain('edge receipt 2: anchor_mismatch');
  });

  test('takes a single receipt of the edge with keys that are given', async () => {
    const [receipt] = await makeEdgeChain(world, 1, []);
    const file = join(folder, 'edge.json');
    const keysFile = join(folder, 'keys.json');
    await writeFile(file, JSON.stringify({ receipt }));
    await writeFile(keysFile, JSON.stringify(world.keys));
    const verified = await verify(file, '--keys', keysFile);
    expect(verified).toMatchObject({ exitCode: 0 });
    expect(verified.output).toContain('by the edge https://edge.example');
    const other = await makeWorld();
    await writeFile(keysFile, JSON.stringify(other.keys));
    expect(await verify(file, '--keys', keysFile)).toMatchObject({ exitCode: 1 });
  });
});
