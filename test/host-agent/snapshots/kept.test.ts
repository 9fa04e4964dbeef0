/** What a host stored at the edge and kept: sessions that come back and forks are made of it. */
import { randomBytes } from 'node:crypto';
import { mkdir, mkdtemp, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { HOST_STATE_FILE } from '../../../host-agent/execution/carried.ts';
import { KeptChunks } from '../../../host-agent/snapshots/kept-chunks.ts';
import { KeptImages } from '../../../host-agent/snapshots/kept-images.ts';
import { KeptRoom } from '../../../host-agent/snapshots/kept-room.ts';
import { Snapshots } from '../../../host-agent/snapshots/snapshots.ts';
import { newId } from '../../../shared/ids.ts';
import { DEFAULT_RESOURCE_LIMITS } from '../../../shared/limits.ts';
import { type RestorePayload, type SnapshotManifest, WORKSPACE_FILE } from '../../../shared/snapshot.ts';
import { type ChunkServer, startChunkServer } from '../../fixtures/chunk-server.ts';
import { hostState } from '../../fixtures/host-state.ts';
import { PATIENCE_MS } from '../../patience.ts';

const TOKEN = 'a-transfer-token';
const SECRET = 'what the session remembers';
const IMAGE = `sha256:${'0'.repeat(64)}`;
const SESSION_ID = `ses_${'a'.repeat(38)}`;
const MIB = 1024 ** 2;
const about = { image: IMAGE, limits: { ...DEFAULT_RESOURCE_LIMITS } };

let directory: string;
let server: ChunkServer;

beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), 'sandgate-kept-'));
  server = await startChunkServer(TOKEN);
});
afterEach(async () => {
  vi.useRealTimers();
  await server[Symbol.asyncDispose]();
  await rm(directory, { recursive: true, force: true });
});

const keptDirectory = () => join(directory, 'snapshots/kept');
/** What lies here plain. */
const imagesDirectory = () => join(directory, 'snapshots/images');

function host(keptBytes = 64 * MIB): Promise<Snapshots> {
  return Snapshots.open({
    maxWorkspaceBytes: 0,
    edgeUrl: server.url,
    directory: join(directory, 'snapshots'),
    keptBytes,
    host: { runscVersion: 'release', runscPlatform: 'systrap' },
    cpuFeaturesSha256: '0'.repeat(64),
  });
}

/** Stores one, and forgets what was asked of the edge for it. */
async function store(
  snapshots: Snapshots,
  pages = Buffer.from(SECRET),
  meanwhile: () => Promise<void> = async () => {},
): Promise<RestorePayload> {
  const source = await snapshots.folder();
  await writeFile(join(source, 'pages.img'), pages);
  await writeFile(join(source, HOST_STATE_FILE), JSON.stringify(hostState()));
  await writeFile(join(source, WORKSPACE_FILE), 'an archive');
  const key = {
    snapshot_id: newId('snp'),
    key: randomBytes(32).toString('base64url'),
    transfer_token: TOKEN,
  };
  const facts = {
    session_id: SESSION_ID,
    epoch: 1,
    limits: about.limits,
    generation: 0,
    executions: [],
  };
  const { signal } = new AbortController();
  const storing = snapshots.store(source, key, { facts, image: IMAGE, signal, isPatient: false });
  await meanwhile();
  const stored = await storing;
  if (!stored.ok) throw new Error(stored.detail);
  await snapshots.remove(source);
  server.store.requests.length = 0;
  return { ...key, manifest_sha256: stored.value.manifestSha256, generation: 1, executions: 'continue' };
}

async function fetched(snapshots: Snapshots, snapshot: RestorePayload) {
  const opened = await snapshots.fetch(snapshot, about, new AbortController().signal);
  if (!opened.ok) throw new Error(opened.detail);
  return opened.value;
}

function manifestOf(files: SnapshotManifest['files']): SnapshotManifest {
  return {
    v: 1,
    snapshot_id: newId('snp'),
    session_id: SESSION_ID,
    epoch: 1,
    created_at: new Date().toISOString(),
    image: IMAGE,
    runsc_version: 'release',
    runsc_platform: 'systrap',
    cpu_features_sha256: '0'.repeat(64),
    limits: about.limits,
    generation: 0,
    files,
    executions: [],
  };
}

describe('a snapshot that this host stored', () => {
  test('is opened again without a word with the edge', async () => {
    const snapshots = await host();
    const snapshot = await store(snapshots);
    await using opened = await fetched(snapshots, snapshot);
    expect(await readFile(join(opened.folder, 'pages.img'), 'utf8')).toBe(SECRET);
    expect(server.store.requests).toEqual([]);
  });

  test('lies here sealed as it lies there: nothing of it can be read, and no other key opens it', async () => {
    const snapshots = await host();
    const snapshot = await store(snapshots);
    const names = await readdir(keptDirectory());
    expect(names.length).toBe(3);
    expect((await stat(keptDirectory())).mode & 0o777).toBe(0o700);
    for (const name of names) {
      const kept = await readFile(join(keptDirectory(), name));
      expect(kept.includes(SECRET)).toBe(false);
      const there = [...server.store.stored].find(([path]) => path.endsWith(name));
      if (there !== undefined) expect(kept.equals(there[1])).toBe(true);
    }
    const other = { ...snapshot, key: randomBytes(32).toString('base64url') };
    const opened = await snapshots.fetch(other, about, new AbortController().signal);
    expect(opened).toMatchObject({ ok: false, code: 'snapshot_damaged' });
  });

  test('is fetched where what was kept of it is damaged or gone', async () => {
    const snapshots = await host();
    const snapshot = await store(snapshots);
    await rm(imagesDirectory(), { recursive: true });
    const [first, second] = await readdir(keptDirectory());
    await writeFile(join(keptDirectory(), first ?? ''), 'something else');
    await rm(join(keptDirectory(), second ?? ''));
    await using opened = await fetched(snapshots, snapshot);
    expect(await readFile(join(opened.folder, 'pages.img'), 'utf8')).toBe(SECRET);
    expect(server.store.requests.length).toBe(2);
  });

  test('is kept no longer once the session goes on, nor by the next agent', async () => {
    const snapshots = await host();
    const opened = await fetched(snapshots, await store(snapshots));
    expect(snapshots.keptBytes).toBeGreaterThan(0);
    await opened.forget();
    expect(snapshots.keptBytes).toBe(0);
    expect(await readdir(keptDirectory())).toEqual([]);
    await opened[Symbol.asyncDispose]();
    expect(await readdir(imagesDirectory())).toEqual([]);
    await store(snapshots);
    expect((await host()).keptBytes).toBe(0);
    expect(await readdir(join(directory, 'snapshots'))).toEqual([]);
  });

  test('is not kept where the operator wants none, and forks that begin at once fetch it once', async () => {
    const snapshots = await host(0);
    const snapshot = { ...(await store(snapshots)), executions: 'stop' as const };
    const forks = await Promise.all(Array.from({ length: 8 }, () => fetched(snapshots, snapshot)));
    expect(new Set(forks.map(({ folder }) => folder)).size).toBe(1);
    // The manifest, and two chunks.
    expect(server.store.requests.length).toBe(3);
    const folder = forks[0]?.folder ?? '';
    for (const fork of forks.splice(1)) await fork[Symbol.asyncDispose]();
    expect(await readFile(join(folder, 'pages.img'), 'utf8')).toBe(SECRET);
    await forks[0]?.[Symbol.asyncDispose]();
    expect(await readdir(join(directory, 'snapshots'))).toEqual([]);
  });

  test('gives way to later ones, and comes from the edge then', async () => {
    const snapshots = await host(2 * MIB);
    const first = await store(snapshots, randomBytes(1.5 * MIB));
    const second = await store(snapshots, randomBytes(1.5 * MIB));
    expect(snapshots.keptBytes).toBeLessThanOrEqual(2 * MIB);
    await (await fetched(snapshots, second))[Symbol.asyncDispose]();
    expect(server.store.requests).toEqual([]);
    await (await fetched(snapshots, first))[Symbol.asyncDispose]();
    expect(server.store.requests).not.toEqual([]);
  });
});

describe('its files as they were', () => {
  const imageOf = ({ manifest_sha256 }: RestorePayload) => join(imagesDirectory(), manifest_sha256);

  test('are taken as they lie, in a folder of nobody else', async () => {
    const snapshots = await host();
    const snapshot = await store(snapshots);
    await using opened = await fetched(snapshots, snapshot);
    expect(opened.folder).toBe(imageOf(snapshot));
    for (const folder of [imagesDirectory(), opened.folder]) {
      expect((await stat(folder)).mode & 0o777).toBe(0o700);
    }
    expect(await readFile(join(opened.folder, 'pages.img'), 'utf8')).toBe(SECRET);
  });

  test('are opened anew, every piece verified, where one was changed since or nothing came of it', async () => {
    const snapshots = await host();
    const changed = await store(snapshots);
    await writeFile(join(imageOf(changed), 'pages.img'), 'x'.repeat(SECRET.length));
    await using anew = await fetched(snapshots, changed);
    expect(await readFile(join(anew.folder, 'pages.img'), 'utf8')).toBe(SECRET);
    const doubted = await store(snapshots);
    const first = await fetched(snapshots, doubted);
    await first.doubt();
    await first[Symbol.asyncDispose]();
    await using second = await fetched(snapshots, doubted);
    expect(second.folder).not.toBe(first.folder);
    expect(await readdir(imagesDirectory())).toEqual([]);
  });

  test('go with their session, but for who reads them until that is done', async () => {
    const snapshots = await host();
    const snapshot = await store(snapshots);
    const opened = await fetched(snapshots, snapshot);
    await snapshots.forgetSession(`ses_${'b'.repeat(38)}`);
    expect(await readdir(imagesDirectory())).toEqual([snapshot.manifest_sha256]);
    await snapshots.forgetSession(SESSION_ID);
    expect(await readFile(join(opened.folder, 'pages.img'), 'utf8')).toBe(SECRET);
    await opened[Symbol.asyncDispose]();
    expect(await readdir(imagesDirectory())).toEqual([]);
  });

  test('are not kept where their session ends while they are stored, nor once the agent stops', async () => {
    const snapshots = await host();
    await store(snapshots, undefined, () => snapshots.forgetSession(SESSION_ID));
    expect(await readdir(join(directory, 'snapshots'))).not.toContain('images');
    await store(snapshots);
    await snapshots.close();
    expect(await readdir(imagesDirectory())).toEqual([]);
    await store(snapshots);
    expect(await readdir(imagesDirectory())).toEqual([]);
  });

  test('are refused like those that are sealed where they are larger than the session may be', async () => {
    const snapshots = await host();
    const snapshot = await store(snapshots);
    const sizes = { memory_bytes: 1 - 512 * MIB, workspace_bytes: 0, tmp_bytes: 0 };
    const opened = await snapshots.fetch(
      snapshot,
      { image: IMAGE, limits: { ...about.limits, ...sizes } },
      new AbortController().signal,
    );
    expect(opened).toMatchObject({ ok: false, code: 'snapshot_damaged' });
  });

  test('leave out the workspace beside them, and give way to what lies here sealed', async () => {
    const snapshots = await host(3.5 * MIB);
    const first = await store(snapshots, randomBytes(MIB));
    expect((await readdir(imageOf(first))).sort()).toEqual([HOST_STATE_FILE, 'pages.img'].sort());
    await store(snapshots, randomBytes(MIB));
    expect(await readdir(imagesDirectory())).not.toContain(first.manifest_sha256);
    expect(snapshots.keptBytes).toBeLessThanOrEqual(3.5 * MIB);
    await (await fetched(snapshots, first))[Symbol.asyncDispose]();
    expect(server.store.requests).toEqual([]);
  });

  test('take no more than their room where several are stored at once', async () => {
    const snapshots = await host(1.5 * MIB);
    const pages = Buffer.alloc(MIB, 'x');
    await Promise.all([store(snapshots, pages), store(snapshots, pages), store(snapshots, pages)]);
    expect(snapshots.keptBytes).toBeLessThanOrEqual(1.5 * MIB);
    expect(await readdir(imagesDirectory())).toHaveLength(1);
  });

  const NAME = { manifestSha256: '1'.repeat(64), key: 'a key' };
  const MANIFEST = manifestOf([{ name: 'pages.img', bytes: SECRET.length, chunks: [] }]);

  /** A folder with the one file that the manifest names. */
  async function stored(): Promise<string> {
    const from = join(directory, 'from');
    await mkdir(from);
    await writeFile(join(from, 'pages.img'), SECRET);
    return from;
  }

  test.each<[string, (images: KeptImages) => () => boolean]>([
    [
      'its session ends',
      () => {
        let asked = 0;
        return () => {
          asked += 1;
          return asked === 1;
        };
      },
    ],
    [
      'its agent stops',
      (images) => () => {
        void images.close();
        return true;
      },
    ],
  ])('leave nothing where %s while one is being taken', async (_, wantedBy) => {
    const room = new KeptRoom({ directory, maxBytes: MIB });
    const images = new KeptImages({ directory: imagesDirectory(), room, maxAgeMs: 60_000 });
    await images.keep(await stored(), NAME, MANIFEST, wantedBy(images));
    expect(await images.open(NAME)).toBeUndefined();
    expect(await readdir(imagesDirectory())).toEqual([]);
    expect(room.bytes).toBe(0);
  });

  test('go by themselves after a while', async () => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance'] });
    const room = new KeptRoom({ directory, maxBytes: MIB });
    const images = new KeptImages({ directory: imagesDirectory(), room, maxAgeMs: 1_000 });
    const name = NAME;
    await images.keep(await stored(), name, MANIFEST, () => true);
    expect(await images.open(name)).toBeDefined();
    expect(await images.open({ ...name, key: 'another' })).toBeUndefined();
    const closing = await images.open(name);
    await closing?.close();
    await vi.advanceTimersByTimeAsync(1_001);
    expect(await images.open(name)).toBeUndefined();
    expect(room.bytes).toBe(0);
  });
});

test('what was kept for its time goes by itself', async () => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance'] });
  const room = new KeptRoom({ directory, maxBytes: MIB });
  const kept = new KeptChunks({ directory: keptDirectory(), room, maxAgeMs: 1_000 });
  await kept.put('first', randomBytes(100));
  vi.advanceTimersByTime(600);
  await kept.put('second', randomBytes(50));
  vi.advanceTimersByTime(500);
  await vi.waitFor(() => expect(room.bytes).toBe(50), { timeout: PATIENCE_MS });
  expect(await kept.get('first')).toBeUndefined();
  expect(await kept.get('second')).toHaveLength(50);
  await vi.advanceTimersByTimeAsync(600);
  await vi.waitFor(async () => expect(await readdir(keptDirectory())).toEqual([]), { timeout: PATIENCE_MS });
});
