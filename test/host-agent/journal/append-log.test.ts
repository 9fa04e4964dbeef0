/** F27: a disk that tells of an error says nothing of what it has kept. */
import { mkdtemp, open, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { AppendLog } from '../../../host-agent/journal/append-log.ts';
import { encodeRecord } from '../../../host-agent/journal/record-format.ts';

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
