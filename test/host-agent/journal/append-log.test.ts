/** F27: a disk that tells of an error says nothing of what it has kept. */
import { copyFile, mkdtemp, open, rm, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { AppendLog } from '../../../host-agent/journal/append-log.ts';
import { encodeRecord } from '../../../host-agent/journal/record-format.ts';
import { PATIENCE_MS } from '../../patience.ts';

let directory: string;
beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), 'sandgate-append-log-'));
});
afterEach(async () => {
  vi.restoreAllMocks();
  await rm(directory, { recursive: true, force: true });
});

const record = (number: number): Buffer => encodeRecord({ kind: 'key_set', version: number, token: 'same' });

/** What all open files do. */
async function fileMethods(): Promise<{
  write: (...args: unknown[]) => Promise<unknown>;
  truncate: (length?: number) => Promise<void>;
  sync: () => Promise<void>;
}> {
  await using file = await open(directory, 'r');
  return Object.getPrototypeOf(file);
}

test('a group that an error was told of is never read again, though the disk kept it and did not let it go', async () => {
  const path = join(directory, 'journal');
  const { log } = await AppendLog.open(path);
  const methods = await fileMethods();
  const { write } = methods;
  const fault = new Error('EIO: i/o error');
  vi.spyOn(methods, 'write').mockImplementationOnce(async function (this: unknown, ...args) {
    await write.apply(this, args);
    throw fault;
  });
  vi.spyOn(methods, 'truncate').mockRejectedValueOnce(fault);
  const refused = await Promise.all([log.append(record(1)), log.append(record(2))]);
  expect(refused).toEqual([false, false]);
  // As long as the first of those, so that the second lies right behind it.
  expect(await log.append(record(3))).toBe(true);
  await log.close();
  const { records, tornBytes, log: reopened } = await AppendLog.open(path);
  expect(records.map(({ header }) => header)).toEqual([{ kind: 'key_set', version: 3, token: 'same' }]);
  expect(tornBytes).toBe(0);
  await reopened.close();
});

test('a disk that lets nothing go takes nothing either', async () => {
  const { log } = await AppendLog.open(join(directory, 'journal'));
  const methods = await fileMethods();
  const fault = new Error('EROFS: read-only file system');
  vi.spyOn(methods, 'write').mockRejectedValueOnce(fault);
  const truncating = vi.spyOn(methods, 'truncate').mockRejectedValue(fault);
  expect(await log.append(record(1))).toBe(false);
  expect(await log.append(record(2))).toBe(false);
  truncating.mockRestore();
  expect(await log.append(record(3))).toBe(true);
  await log.close();
});

test('what is appended is kept also where the disk did not say that the new content has the name', async () => {
  const path = join(directory, 'journal');
  const { log } = await AppendLog.open(path);
  expect(await log.append(record(1))).toBe(true);
  const methods = await fileMethods();
  const { sync } = methods;
  const fault = new Error('EIO: i/o error');
  // Of the file, then of its folder: by what is replaced, and by what is appended after that.
  const syncing = vi
    .spyOn(methods, 'sync')
    .mockImplementationOnce(function (this: unknown) {
      return sync.call(this);
    })
    .mockRejectedValue(fault);
  await expect(log.replace(() => [record(2)])).rejects.toThrow('EIO');
  expect(await log.append(record(3))).toBe(false);
  syncing.mockRestore();
  expect(await log.append(record(4))).toBe(true);
  await log.close();
  const { records, log: reopened } = await AppendLog.open(path);
  expect(records.map(({ header }) => header)).toMatchObject([{ version: 2 }, { version: 4 }]);
  await reopened.close();
});

/** More than a file has before it gets room ahead. */
const MANY = 150;

async function appendMany(log: AppendLog): Promise<void> {
  for (let number = 1; number <= MANY; number += 1) expect(await log.append(paddedRecord(number))).toBe(true);
}

const paddedRecord = (number: number): Buffer =>
  encodeRecord({ kind: 'key_set', version: number, token: 'same'.repeat(50) });

/** A log in use that has room ahead, and what a crash leaves of it at this moment. */
async function crashedWithRoom() {
  const path = join(directory, 'journal');
  const { log } = await AppendLog.open(path);
  await appendMany(log);
  await expect
    .poll(async () => (await stat(path)).size, { timeout: PATIENCE_MS })
    .toBeGreaterThan(log.sizeBytes);
  const asCrashed = join(directory, 'crashed');
  await copyFile(path, asCrashed);
  return { path, log, asCrashed };
}

test('a log that is in use has room ahead, of which a crash leaves nothing that is taken for a record', async () => {
  const { path, log, asCrashed } = await crashedWithRoom();
  const crashed = await AppendLog.open(asCrashed);
  expect(crashed.records).toHaveLength(MANY);
  expect(crashed.tornBytes).toBe(0);
  expect(await crashed.log.append(paddedRecord(MANY + 1))).toBe(true);
  await crashed.log.close();
  const reopened = await AppendLog.open(asCrashed);
  expect(reopened.records).toHaveLength(MANY + 1);
  await reopened.log.close();
  await log.close();
  expect((await stat(path)).size).toBe(log.sizeBytes);
});

test('a record that a crash tore in the room ahead is cut off and counted', async () => {
  const { log, asCrashed } = await crashedWithRoom();
  const torn = paddedRecord(MANY + 1).subarray(0, 100);
  await using file = await open(asCrashed, 'r+');
  await file.write(torn, 0, torn.length, log.sizeBytes);
  await log.close();
  const crashed = await AppendLog.open(asCrashed);
  expect(crashed.records).toHaveLength(MANY);
  expect(crashed.tornBytes).toBe(torn.length);
  await crashed.log.close();
});

test('a disk that has no room ahead still takes records', async () => {
  const path = join(directory, 'journal');
  const { log } = await AppendLog.open(path);
  const methods = await fileMethods();
  const { write } = methods;
  vi.spyOn(methods, 'write').mockImplementation(async function (this: unknown, ...args) {
    const [bytes] = args;
    if (Buffer.isBuffer(bytes) && bytes.every((byte) => byte === 0)) {
      throw new Error('ENOSPC: no space left on device');
    }
    return write.apply(this, args);
  });
  await appendMany(log);
  await log.close();
  const { records, tornBytes, log: reopened } = await AppendLog.open(path);
  expect(records).toHaveLength(MANY);
  expect(tornBytes).toBe(0);
  await reopened.close();
});
