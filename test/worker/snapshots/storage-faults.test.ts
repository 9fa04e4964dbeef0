/** F24: the storage of snapshots fails, is slow, or does what it was asked and says that it did not. */
import { createExecutionContext } from 'cloudflare:test';
import { env } from 'cloudflare:workers';
import { beforeEach, describe, expect, test } from 'vitest';
import { sha256Hex } from '../../../shared/digest.ts';
import { utf8 } from '../../../shared/encoding.ts';
import { newId, randomHandle } from '../../../shared/ids.ts';
import { DEFAULT_RESOURCE_LIMITS } from '../../../shared/limits.ts';
import { ProblemSchema } from '../../../shared/problem.ts';
import { snapshotChunkPath, snapshotManifestPath } from '../../../shared/snapshot.ts';
import { createApp } from '../../../worker/app.ts';
import { configurationOf } from '../../../worker/configuration.ts';
import { signTransferToken, type TransferClaims } from '../../../worker/snapshots/transfer-token.ts';
import { DOUBLE_TRAITS } from '../../fixtures/host-double/snapshot-double.ts';
import { ORIGIN } from '../issuer-bindings.ts';

const app = createApp();
let claims: TransferClaims;
let tokens: { put: string; get: string };

beforeEach(async () => {
  claims = {
    host: newId('hst'),
    tenant: 'acme',
    session: `ses_${randomHandle()}${'a'.repeat(16)}`,
    snapshot: newId('snp'),
    epoch: 1,
    direction: 'put',
  };
  const configuration = await configurationOf(env);
  tokens = {
    put: await signTransferToken(claims, configuration),
    get: await signTransferToken({ ...claims, direction: 'get' }, configuration),
  };
});

type Put = R2Bucket['put'];

/** The storage as it is, but for how it takes what is put. */
function bucketThat(put: (sound: Put) => Put): R2Bucket {
  const sound = env.SNAPSHOTS;
  return new Proxy(sound, {
    get: (bucket, name) => {
      if (name === 'put') return put(sound.put.bind(sound));
      const value: unknown = Reflect.get(bucket, name);
      return typeof value === 'function' ? value.bind(bucket) : value;
    },
  });
}

const sound = () => env.SNAPSHOTS;
const failing = () => bucketThat(() => async () => Promise.reject(new Error('storage is down')));
const forgetful = () =>
  bucketThat((put) => async (...about: Parameters<Put>) => {
    await put(...about);
    throw new Error('timed out');
  });

async function send(method: 'GET' | 'PUT', path: string, bucket: R2Bucket, bytes?: Uint8Array<ArrayBuffer>) {
  const headers = { authorization: `Bearer ${method === 'PUT' ? tokens.put : tokens.get}` };
  const body = bytes === undefined ? {} : { body: bytes };
  const asked = new Request(`${ORIGIN}${path}`, { method, headers, ...body });
  return app.fetch(asked, { ...env, SNAPSHOTS: bucket }, createExecutionContext());
}

const bytesOf = async (answer: Response) => new Uint8Array(await answer.arrayBuffer());

async function piece() {
  const bytes = crypto.getRandomValues(new Uint8Array(50_000));
  const sha256 = await sha256Hex(bytes);
  return { bytes, sha256, path: snapshotChunkPath(claims.snapshot, sha256) };
}

async function isRefusedForNow(answer: Response): Promise<void> {
  expect(answer.status).toBe(503);
  expect(answer.headers.get('Retry-After')).toBe('2');
  expect(ProblemSchema.parse(await answer.json())).toMatchObject({
    code: 'storage_unavailable',
    retryable: true,
  });
}

function manifestOf(chunk: { sha256: string; bytes: Uint8Array }, generation = 0) {
  const file = { sha256: chunk.sha256, bytes: chunk.bytes.length, stored_bytes: chunk.bytes.length };
  return utf8(
    JSON.stringify({
      v: 1,
      snapshot_id: claims.snapshot,
      session_id: claims.session,
      epoch: claims.epoch,
      created_at: '2026-11-30T00:00:00.000Z',
      image: `sha256:${'1'.repeat(64)}`,
      ...DOUBLE_TRAITS,
      limits: { ...DEFAULT_RESOURCE_LIMITS },
      generation,
      files: [{ name: 'pages.img', bytes: chunk.bytes.length, chunks: [file] }],
      executions: [],
    }),
  );
}

describe('F24: a chunk', () => {
  test('that the storage does not take is refused for now, is not there, and is there after a second try', async () => {
    const { bytes, path } = await piece();
    await isRefusedForNow(await send('PUT', path, failing(), bytes));
    expect((await send('GET', path, sound())).status).toBe(404);
    expect((await send('PUT', path, sound(), bytes)).status).toBe(204);
    expect(await bytesOf(await send('GET', path, sound()))).toEqual(bytes);
  });

  test('that was stored after its time was over is whole, and stays so when it is sent again', async () => {
    const { bytes, path } = await piece();
    await isRefusedForNow(await send('PUT', path, forgetful(), bytes));
    expect(await bytesOf(await send('GET', path, sound()))).toEqual(bytes);
    expect((await send('PUT', path, sound(), bytes)).status).toBe(204);
    expect(await bytesOf(await send('GET', path, sound()))).toEqual(bytes);
  });

  test('that is sent again while the first is still on its way is one chunk', async () => {
    const { bytes, path } = await piece();
    const { promise: goOn, resolve: letGo } = Promise.withResolvers<void>();
    const slow = bucketThat((put) => async (...about: Parameters<Put>) => {
      await goOn;
      return put(...about);
    });
    const first = send('PUT', path, slow, bytes);
    expect((await send('PUT', path, sound(), bytes)).status).toBe(204);
    letGo();
    expect((await first).status).toBe(204);
    expect(await bytesOf(await send('GET', path, sound()))).toEqual(bytes);
    const { objects } = await env.SNAPSHOTS.list({ prefix: `acme/${claims.snapshot}/` });
    expect(objects).toHaveLength(1);
  });
});

describe('F24: a manifest', () => {
  test('that was stored though the storage said otherwise is taken as the same one, and no other is', async () => {
    const chunk = await piece();
    expect((await send('PUT', chunk.path, sound(), chunk.bytes)).status).toBe(204);
    const path = snapshotManifestPath(claims.snapshot);
    const manifest = manifestOf(chunk);
    await isRefusedForNow(await send('PUT', path, failing(), manifest));
    expect((await send('GET', path, sound())).status).toBe(404);
    await isRefusedForNow(await send('PUT', path, forgetful(), manifest));
    expect((await send('PUT', path, sound(), manifest)).status).toBe(204);
    const other = await send('PUT', path, sound(), manifestOf(chunk, 7));
    expect(ProblemSchema.parse(await other.json()).code).toBe('idempotency_conflict');
    expect(await bytesOf(await send('GET', path, sound()))).toEqual(manifest);
  });

  test('is not taken while a chunk of it is not there', async () => {
    const chunk = await piece();
    await isRefusedForNow(await send('PUT', chunk.path, failing(), chunk.bytes));
    const answer = await send('PUT', snapshotManifestPath(claims.snapshot), sound(), manifestOf(chunk));
    expect(ProblemSchema.parse(await answer.json()).code).toBe('snapshot_damaged');
  });
});
