import { hash, randomBytes } from 'node:crypto';
import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { downloadFiles, readManifest } from '../../../host-agent/snapshots/download.ts';
import { Sealing } from '../../../host-agent/snapshots/sealing.ts';
import { SealingThreads } from '../../../host-agent/snapshots/sealing-threads.ts';
import {
  PATIENT_ATTEMPTS,
  SnapshotStorage,
  type StorageOptions,
} from '../../../host-agent/snapshots/storage.ts';
import { uploadFiles } from '../../../host-agent/snapshots/upload.ts';
import { newId } from '../../../shared/ids.ts';
import { SNAPSHOT_PIECE_BYTES, type SnapshotManifest } from '../../../shared/snapshot.ts';
import { type ChunkServer, startChunkServer } from '../../fixtures/chunk-server.ts';

const TOKEN = 'a-transfer-token';
const KEY = randomBytes(32).toString('base64url');
const SNAPSHOT_ID = newId('snp');
const threads = new SealingThreads();

let directory: string;
let server: ChunkServer;
let source: string;

beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), 'sandgate-chunks-'));
  source = await mkdtemp(join(directory, 'source-'));
  server = await startChunkServer(TOKEN);
});
afterEach(async () => {
  await server[Symbol.asyncDispose]();
  await rm(directory, { recursive: true, force: true });
});

function storage(how: Partial<StorageOptions> = {}): SnapshotStorage {
  return new SnapshotStorage({
    edgeUrl: server.url,
    snapshotId: SNAPSHOT_ID,
    token: TOKEN,
    signal: new AbortController().signal,
    firstPauseMs: 1,
    ...how,
  });
}

function parts(key = KEY) {
  return { storage: storage(), sealing: new Sealing(threads, SNAPSHOT_ID, key) };
}

async function upload() {
  const uploaded = await uploadFiles(source, parts());
  if (!uploaded.ok) throw new Error(uploaded.detail);
  return uploaded.value;
}

function manifestOf(files: SnapshotManifest['files']): SnapshotManifest {
  return {
    v: 1,
    snapshot_id: SNAPSHOT_ID,
    session_id: `ses_${'a'.repeat(38)}`,
    epoch: 1,
    created_at: new Date(0).toISOString(),
    image: `sha256:${'0'.repeat(64)}`,
    runsc_version: 'release',
    runsc_platform: 'systrap',
    cpu_features_sha256: '0'.repeat(64),
    limits: { cpus: 1, memory_bytes: 2 ** 28, processes: 64, workspace_bytes: 2 ** 26, tmp_bytes: 2 ** 26 },
    generation: 0,
    files,
    executions: [],
  };
}

describe('a checkpoint that is stored', () => {
  const FILES = {
    'pages.img': Buffer.concat([
      randomBytes(SNAPSHOT_PIECE_BYTES),
      Buffer.alloc(3 * SNAPSHOT_PIECE_BYTES),
      randomBytes(1000),
    ]),
    'checkpoint.img': Buffer.from('a small one'),
    'empty.img': Buffer.alloc(0),
  };

  beforeEach(async () => {
    for (const [name, bytes] of Object.entries(FILES)) await writeFile(join(source, name), bytes);
  });

  async function restored(files: SnapshotManifest['files'], key = KEY, maxBytes = 2 ** 28) {
    const target = join(directory, 'target');
    const got = await downloadFiles(files, target, { ...parts(key), maxBytes });
    return { got, target };
  }

  it('comes back as it was, and pieces that are equal are stored once', async () => {
    const { files, bytes, storedBytes } = await upload();
    expect(bytes).toBe(Object.values(FILES).reduce((sum, { length }) => sum + length, 0));
    expect(server.store.stored.size).toBe(4);
    expect(storedBytes).toBe([...server.store.stored.values()].reduce((sum, { length }) => sum + length, 0));
    const { got, target } = await restored(files);
    expect(got).toEqual({ ok: true, value: null });
    expect((await readdir(target)).sort()).toEqual(Object.keys(FILES).sort());
    for (const [name, content] of Object.entries(FILES)) {
      expect((await readFile(join(target, name))).equals(content)).toBe(true);
    }
  });

  it('holds nothing that could be read without the key, and no other key opens it', async () => {
    const { files } = await upload();
    for (const stored of server.store.stored.values()) expect(stored.includes('a small one')).toBe(false);
    const { got } = await restored(files, randomBytes(32).toString('base64url'));
    expect(got).toMatchObject({ ok: false, code: 'snapshot_damaged' });
  });

  it('comes back as it was where it has many pieces and some are sent again', async () => {
    const pages = randomBytes(12 * SNAPSHOT_PIECE_BYTES + 1);
    await writeFile(join(source, 'pages.img'), pages);
    const seen = new Set<string>();
    // Each but every third is sent twice, however they come.
    server.store.fault = (request) => {
      if (seen.has(request)) return undefined;
      seen.add(request);
      return seen.size % 3 === 0 ? undefined : seen.size % 3 === 1 ? 'cut' : 503;
    };
    const { files } = await upload();
    server.store.fault = () => undefined;
    const { got, target } = await restored(files);
    expect(got).toEqual({ ok: true, value: null });
    expect((await readFile(join(target, 'pages.img'))).equals(pages)).toBe(true);
  });

  it('is stored in spite of answers that fail for a while', async () => {
    const tries = new Map<string, number>();
    server.store.fault = (request) => {
      tries.set(request, (tries.get(request) ?? 0) + 1);
      return tries.get(request) === 1 ? 503 : tries.get(request) === 2 ? 'cut' : undefined;
    };
    const { files } = await upload();
    expect((await restored(files)).got).toEqual({ ok: true, value: null });
  });

  it('is stored where the storage was away for longer and nobody waits for it', async () => {
    const tries = new Map<string, number>();
    server.store.fault = (request) => {
      tries.set(request, (tries.get(request) ?? 0) + 1);
      return (tries.get(request) ?? 0) < PATIENT_ATTEMPTS ? 503 : undefined;
    };
    const { sealing } = parts();
    const patient = storage({ attempts: PATIENT_ATTEMPTS });
    expect(await uploadFiles(source, { storage: storage(), sealing })).toMatchObject({ ok: false });
    tries.clear();
    expect(await uploadFiles(source, { storage: patient, sealing })).toMatchObject({ ok: true });
  });

  it('is given up where the storage refuses it, and soon where it does so for good', async () => {
    server.store.fault = () => 413;
    expect(await uploadFiles(source, parts())).toMatchObject({
      ok: false,
      code: 'storage_unavailable',
    });
    expect(new Set(server.store.requests).size).toBe(server.store.requests.length);
    server.store.fault = () => 500;
    expect(await uploadFiles(source, parts())).toMatchObject({
      ok: false,
      code: 'storage_unavailable',
    });
  });

  it('is not restored where a chunk is another, is gone, or was cut', async () => {
    const { files } = await upload();
    const [path, stored] = [...server.store.stored].at(-1) ?? ['', Buffer.alloc(0)];
    const changed = Buffer.from(stored);
    changed.writeUInt8(changed.readUInt8(20) ^ 1, 20);
    for (const damage of [changed, stored.subarray(0, 20), Buffer.alloc(0), undefined]) {
      if (damage === undefined) server.store.stored.delete(path);
      else server.store.stored.set(path, damage);
      const { got, target } = await restored(files);
      expect(got).toMatchObject({ ok: false, code: 'snapshot_damaged' });
      await rm(target, { recursive: true });
    }
  });

  it('is not fetched where it takes more room than the session may', async () => {
    const { files, bytes } = await upload();
    server.store.requests.length = 0;
    const { got } = await restored(files, KEY, bytes - 1);
    expect(got).toMatchObject({ ok: false, code: 'snapshot_damaged' });
    expect(server.store.requests).toEqual([]);
    expect((await restored(files, KEY, bytes)).got).toEqual({ ok: true, value: null });
  });

  it('is read by the digest of its manifest only', async () => {
    const { files } = await upload();
    const manifest = new TextEncoder().encode(JSON.stringify(manifestOf(files)));
    const sha256 = hash('sha256', manifest);
    expect(await storage().putManifest(sha256, manifest)).toMatchObject({ ok: true });
    const expected = { snapshotId: SNAPSHOT_ID, sha256 };
    expect(await readManifest(storage(), expected)).toEqual({ ok: true, value: manifestOf(files) });
    expect(await readManifest(storage(), { ...expected, sha256: '1'.repeat(64) })).toMatchObject({
      code: 'snapshot_damaged',
    });
    expect(await readManifest(storage(), { ...expected, snapshotId: newId('snp') })).toMatchObject({
      code: 'snapshot_damaged',
    });
  });

  it('moves a bounded number of pieces at once', async () => {
    await writeFile(join(source, 'large.img'), randomBytes(12 * SNAPSHOT_PIECE_BYTES));
    const { files } = await upload();
    expect((await restored(files)).got).toMatchObject({ ok: true });
    expect(server.store.mostAtOnce).toBeLessThanOrEqual(6);
  });

  it('ends at once when nobody waits for it any more', async () => {
    const ended = new AbortController();
    server.store.fault = (_, index) => {
      if (index === 0) ended.abort();
      return 503;
    };
    const uploaded = await uploadFiles(source, {
      ...parts(),
      storage: storage({ signal: ended.signal }),
    });
    expect(uploaded).toMatchObject({ ok: false, code: 'storage_unavailable' });
    expect(server.store.requests.length).toBeLessThanOrEqual(4);
  });
});
