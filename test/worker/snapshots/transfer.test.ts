/** The door of hosts to stored snapshots. */
import { env } from 'cloudflare:workers';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { sha256Hex } from '../../../shared/digest.ts';
import { utf8 } from '../../../shared/encoding.ts';
import { newId, randomHandle } from '../../../shared/ids.ts';
import { DEFAULT_RESOURCE_LIMITS } from '../../../shared/limits.ts';
import {
  MAX_STORED_CHUNK_BYTES,
  type SnapshotManifest,
  snapshotChunkPath,
  snapshotManifestPath,
} from '../../../shared/snapshot.ts';
import { configurationOf } from '../../../worker/configuration.ts';
import { snapshotKey } from '../../../worker/snapshots/snapshot-keys.ts';
import { signTransferToken, type TransferClaims } from '../../../worker/snapshots/transfer-token.ts';
import { DOUBLE_TRAITS } from '../../fixtures/host-double/snapshot-double.ts';
import { tokenOf } from '../fixture-issuer.ts';
import { workerTransport } from '../harness/fake-host.ts';

let claims: TransferClaims;
let put: string;
let get: string;

beforeEach(async () => {
  claims = {
    host: newId('hst'),
    tenant: 'acme',
    session: `ses_${randomHandle()}${'a'.repeat(16)}`,
    snapshot: newId('snp'),
    epoch: 3,
    direction: 'put',
  };
  const configuration = await configurationOf(env);
  put = await signTransferToken(claims, configuration);
  get = await signTransferToken({ ...claims, direction: 'get' }, configuration);
});
afterEach(() => {
  vi.useRealTimers();
});

async function chunk(text = 'sealed bytes') {
  const bytes = utf8(text);
  const sha256 = await sha256Hex(bytes);
  return { bytes, sha256, path: snapshotChunkPath(claims.snapshot, sha256) };
}

function manifestOf(chunks: { sha256: string; bytes: Uint8Array }[]): SnapshotManifest {
  return {
    v: 1,
    snapshot_id: claims.snapshot,
    session_id: claims.session,
    epoch: claims.epoch,
    created_at: new Date().toISOString(),
    image: `sha256:${'1'.repeat(64)}`,
    ...DOUBLE_TRAITS,
    limits: { ...DEFAULT_RESOURCE_LIMITS },
    generation: 0,
    files: [
      {
        name: 'pages.img',
        bytes: chunks.reduce((total, { bytes }) => total + bytes.length, 0),
        chunks: chunks.map(({ sha256, bytes }) => ({
          sha256,
          bytes: bytes.length,
          stored_bytes: bytes.length,
        })),
      },
    ],
    executions: [],
  };
}

const send = workerTransport.send.bind(workerTransport);
const status = async (answer: ReturnType<typeof send>) => (await answer).status;

describe('a chunk', () => {
  test('is stored under its digest, as often as it is sent, and read back as it is', async () => {
    const { bytes, path } = await chunk();
    expect(await status(send('GET', path, get))).toBe(404);
    expect(await status(send('PUT', path, put, bytes))).toBe(204);
    expect(await status(send('PUT', path, put, bytes))).toBe(204);
    const read = await send('GET', path, get);
    expect([read.status, new TextDecoder().decode(read.bytes)]).toEqual([200, 'sealed bytes']);
  });

  test('that does not hash to its name, or is too long, is not stored', async () => {
    const { path } = await chunk();
    expect(await status(send('PUT', path, put, utf8('other bytes')))).toBe(422);
    expect(await status(send('PUT', path, put, new Uint8Array(MAX_STORED_CHUNK_BYTES + 1)))).toBe(413);
    expect(await status(send('GET', path, get))).toBe(404);
    const odd = `/hosts/v1/snapshots/${claims.snapshot}/chunks/..%2f${'a'.repeat(60)}`;
    expect(await status(send('PUT', odd, put, utf8('x')))).toBe(404);
  });
});

describe('a manifest', () => {
  test('is taken once all that it names is there, and never replaced by another', async () => {
    const piece = await chunk();
    const path = snapshotManifestPath(claims.snapshot);
    const bytes = utf8(JSON.stringify(manifestOf([piece])));
    expect(await status(send('PUT', path, put, bytes))).toBe(422);
    await send('PUT', piece.path, put, piece.bytes);
    expect(await status(send('PUT', path, put, bytes))).toBe(204);
    expect(await status(send('PUT', path, put, bytes))).toBe(204);
    const other = utf8(JSON.stringify({ ...manifestOf([piece]), generation: 9 }));
    expect(await status(send('PUT', path, put, other))).toBe(422);
    expect(await sha256Hex((await send('GET', path, get)).bytes)).toBe(await sha256Hex(bytes));
  });

  test.each([
    ['of another session', { session_id: `ses_${'b'.repeat(38)}` }],
    ['of another epoch', { epoch: 4 }],
    ['of another snapshot', { snapshot_id: `snp_${'b'.repeat(22)}` }],
    ['with a file outside of its folder', { files: [{ name: '../x', bytes: 0, chunks: [] }] }],
  ])('%s is refused', async (_, change) => {
    const bytes = utf8(JSON.stringify({ ...manifestOf([]), ...change }));
    expect(await status(send('PUT', snapshotManifestPath(claims.snapshot), put, bytes))).toBe(400);
  });
});

describe('a token', () => {
  test('is good for its snapshot and direction only, and for a quarter of an hour', async () => {
    const { bytes, path, sha256 } = await chunk();
    expect(await status(send('PUT', path, get, bytes))).toBe(403);
    expect(await status(send('GET', path, put))).toBe(403);
    expect(await status(send('PUT', snapshotChunkPath(newId('snp'), sha256), put, bytes))).toBe(404);
    vi.useFakeTimers({ toFake: ['Date'], now: Date.now() + 901_000 });
    expect(await status(send('PUT', path, put, bytes))).toBe(401);
  });

  test('that was made for something else is none, and this one opens nothing else', async () => {
    const { bytes, path } = await chunk();
    const access = await tokenOf({ claims: { tenant: 'acme', sub: 'alice' } });
    const foreign = await signTransferToken(claims, {
      origin: 'https://elsewhere.example.com',
      transferKey: (await configurationOf(env)).transferKey,
    });
    for (const token of [access, foreign, `${put}x`, put.replace(/\.[^.]*$/, '.'), 'x']) {
      expect(await status(send('PUT', path, token, bytes)), token.slice(0, 20)).toBe(401);
    }
    expect(await status(send('GET', '/v1/sessions', put))).toBe(401);
  });

  test('of another tenant sees nothing of the same snapshot id', async () => {
    const { bytes, path } = await chunk();
    await send('PUT', path, put, bytes);
    const configuration = await configurationOf(env);
    const other = await signTransferToken({ ...claims, tenant: 'globex', direction: 'get' }, configuration);
    expect(await status(send('GET', path, other))).toBe(404);
  });
});

test('each snapshot of each tenant has a key of its own, and always the same', async () => {
  const { snapshotRoot } = await configurationOf(env);
  const keyOf = (tenant: string, snapshotId: string) => snapshotKey(snapshotRoot, { tenant, snapshotId });
  const keys = await Promise.all([keyOf('acme', 'snp_a'), keyOf('acme', 'snp_b'), keyOf('globex', 'snp_a')]);
  expect(new Set(keys).size).toBe(3);
  expect(await keyOf('acme', 'snp_a')).toBe(keys[0]);
  expect(keys[0]).toMatch(/^[A-Za-z0-9_-]{43}$/);
});
