/** A host refuses to go on from what it cannot take up as it was, before it has any of it. */
import { randomBytes } from 'node:crypto';
import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { HOST_STATE_FILE } from '../../../host-agent/execution/carried.ts';
import { Snapshots, type SnapshotsOptions } from '../../../host-agent/snapshots/snapshots.ts';
import { newId } from '../../../shared/ids.ts';
import { DEFAULT_RESOURCE_LIMITS } from '../../../shared/limits.ts';
import type { RestorePayload } from '../../../shared/snapshot.ts';
import { type ChunkServer, startChunkServer } from '../../fixtures/chunk-server.ts';
import { hostState } from '../../fixtures/host-state.ts';

const TOKEN = 'a-transfer-token';
const PAGES = 'what the session remembers';
const digestOf = (digit: string): string => digit.repeat(64);
const IMAGE = `sha256:${digestOf('0')}`;
const limits = { ...DEFAULT_RESOURCE_LIMITS };
const FACTS = { session_id: `ses_${'a'.repeat(38)}`, epoch: 1, limits, generation: 0, executions: [] };

let directory: string;
let server: ChunkServer;

beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), 'sandgate-mismatch-'));
  server = await startChunkServer(TOKEN);
});
afterEach(async () => {
  await server[Symbol.asyncDispose]();
  await rm(directory, { recursive: true, force: true });
});

/** A host's own facts, which change under it in a test. */
function optionsOf(keptBytes: number): SnapshotsOptions {
  return {
    maxWorkspaceBytes: 0,
    edgeUrl: server.url,
    directory: join(directory, 'snapshots'),
    keptBytes,
    host: { runscVersion: 'release', runscPlatform: 'systrap', guestSha256: digestOf('1') },
    cpuFeaturesSha256: digestOf('2'),
  };
}

async function store(snapshots: Snapshots): Promise<RestorePayload> {
  const source = await snapshots.folder();
  await writeFile(join(source, 'pages.img'), PAGES);
  await writeFile(join(source, HOST_STATE_FILE), JSON.stringify(hostState()));
  const key = randomBytes(32).toString('base64url');
  const place = { snapshot_id: newId('snp'), key, transfer_token: TOKEN };
  const { signal } = new AbortController();
  const stored = await snapshots.store(source, place, {
    facts: FACTS,
    image: IMAGE,
    signal,
    isPatient: false,
  });
  if (!stored.ok) throw new Error(stored.detail);
  await snapshots.remove(source);
  server.store.requests.length = 0;
  return { ...place, manifest_sha256: stored.value.manifestSha256, generation: 1, executions: 'continue' };
}

function fetchedFor(image: string, snapshots: Snapshots, snapshot: RestorePayload) {
  return snapshots.fetch(snapshot, { image, limits }, new AbortController().signal);
}

interface Here {
  options: SnapshotsOptions;
  image: string;
}

const DIFFERENCES: [string, (here: Here) => void][] = [
  [
    'image',
    (here) => {
      here.image = `sha256:${digestOf('f')}`;
    },
  ],
  [
    'runsc_version',
    ({ options }) => {
      options.host.runscVersion = 'another release';
    },
  ],
  [
    'runsc_platform',
    ({ options }) => {
      options.host.runscPlatform = 'kvm';
    },
  ],
  [
    'cpu_features_sha256',
    ({ options }) => {
      options.cpuFeaturesSha256 = digestOf('f');
    },
  ],
  [
    'guest_sha256',
    ({ options }) => {
      options.host.guestSha256 = digestOf('f');
    },
  ],
];
const ROADS = [
  { road: 'kept here', keptBytes: 64 * 1024 ** 2, asked: [] },
  { road: 'fetched', keptBytes: 0, asked: [expect.stringMatching(/^GET .*manifest/)] },
];

test.each(ROADS.flatMap((road) => DIFFERENCES.map(([name, change]) => ({ ...road, name, change }))))(
  'a snapshot that is $road and has another $name is refused, and none of it is lost',
  async ({ keptBytes, asked, name, change }) => {
    const here: Here = { options: optionsOf(keptBytes), image: IMAGE };
    const snapshots = await Snapshots.open(here.options);
    const snapshot = await store(snapshots);
    const { keptBytes: before } = snapshots;
    change(here);
    expect(await fetchedFor(here.image, snapshots, snapshot)).toEqual({
      ok: false,
      code: 'snapshot_mismatch',
      detail: `${name} of the snapshot is another one`,
    });
    expect(server.store.requests).toEqual(asked);
    expect(snapshots.keptBytes).toBe(before);
    const left = await readdir(join(directory, 'snapshots'));
    expect(left.toSorted()).toEqual(keptBytes === 0 ? [] : ['images', 'kept']);

    const { host, cpuFeaturesSha256 } = optionsOf(keptBytes);
    Object.assign(here.options, { host, cpuFeaturesSha256 });
    const opened = await fetchedFor(IMAGE, snapshots, snapshot);
    if (!opened.ok) throw new Error(opened.detail);
    expect(await readFile(join(opened.value.folder, 'pages.img'), 'utf8')).toBe(PAGES);
    await opened.value[Symbol.asyncDispose]();
  },
);

test('a snapshot that does not say with which guest it was made is judged by the state beside it', async () => {
  const options = optionsOf(0);
  delete options.host.guestSha256;
  const snapshots = await Snapshots.open(options);
  const snapshot = await store(snapshots);
  options.host.guestSha256 = digestOf('1');
  const opened = await fetchedFor(IMAGE, snapshots, snapshot);
  expect(opened).toMatchObject({ ok: true, value: { state: { sandbox: { guest: 'guest' } } } });
  if (opened.ok) await opened.value[Symbol.asyncDispose]();
});
