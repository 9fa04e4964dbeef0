/** An append-only file of records. Appends are grouped: whatever waits is written and synced to disk in one go. */
import { constants } from 'node:fs';
import { type FileHandle, open, rename } from 'node:fs/promises';
import { dirname } from 'node:path';
import { decodeRecord, type JournalRecord, LENGTH_BYTES } from './record-format.ts';

interface PendingAppend {
  bytes: Buffer;
  resolve: (written: boolean) => void;
}

/** How long an append that nobody waits for may stay in memory. */
const LAZY_WRITE_DELAY_MS = 500;
const MAX_LAZY_BYTES = 256 * 1024;
/** A file that grew beyond this is in use, and gets room ahead … */
const ROOM_FROM_BYTES = 16 * 1024;
/** … so much at a time. */
const ROOM = Buffer.alloc(256 * 1024);

/** Hears how long each group took to get onto the disk. */
export type OnWrite = (durationMs: number, bytes: number) => void;

export interface OpenedLog {
  log: AppendLog;
  records: JournalRecord[];
  /** Bytes after the last whole record, cut off. */
  tornBytes: number;
}

export class AppendLog {
  readonly #path: string;
  #file: FileHandle;
  /** End of the last record that is known to be whole; the next group is written here. */
  #end: number;
  /**
   * Behind the end, up to here, lie zeros: a write there takes no new place of the disk, and the disk has to note nothing but
   * its bytes.
   */
  #roomTo: number;
  /** Whether something of a group that failed may lie behind the end. */
  #hasRemains = false;
  /** Whether the name may still be that of the former file after a loss of power. */
  #isFolderBehind = false;
  #pending: PendingAppend[] = [];
  #lazy: Buffer[] = [];
  #lazyBytes = 0;
  #lazyTimer: NodeJS.Timeout | undefined;
  #work: Promise<void> = Promise.resolve();
  #writeScheduled = false;
  readonly #onWrite: OnWrite;

  private constructor(path: string, opened: { file: FileHandle; end: number; onWrite: OnWrite }) {
    this.#path = path;
    this.#file = opened.file;
    this.#end = opened.end;
    this.#roomTo = opened.end;
    this.#onWrite = opened.onWrite;
  }

  /** Reads what is there, cuts a torn tail off, and is ready to append. */
  static async open(path: string, onWrite: OnWrite = () => {}): Promise<OpenedLog> {
    const file = await open(path, 'a+', 0o600).then(async (created) => {
      await created.close();
      return open(path, constants.O_RDWR | constants.O_DSYNC);
    });
    const bytes = await file.readFile();
    const records: JournalRecord[] = [];
    let end = 0;
    for (let decoded = decodeRecord(bytes, end); decoded !== undefined; decoded = decodeRecord(bytes, end)) {
      records.push(decoded.record);
      end = decoded.end;
    }
    if (end < bytes.length) {
      await file.truncate(end);
      await file.sync();
    }
    await syncDirectory(dirname(path));
    const tornBytes = tornBytesOf(bytes.subarray(end));
    return { log: new AppendLog(path, { file, end, onWrite }), records, tornBytes };
  }

  get sizeBytes(): number {
    return this.#end;
  }

  /** True once the record is on disk; false where the disk refused it, and then nothing of it is kept. */
  append(bytes: Buffer): Promise<boolean> {
    return new Promise((resolve) => {
      this.#pending.push({ bytes, resolve });
      this.#schedule();
    });
  }

  /** Written with the next group or soon, without waiting for the disk: for what costs only a resend when lost. */
  appendLazily(bytes: Buffer): void {
    if (this.#lazyBytes + bytes.length > MAX_LAZY_BYTES) return;
    this.#lazy.push(bytes);
    this.#lazyBytes += bytes.length;
    this.#lazyTimer ??= setTimeout(() => this.#schedule(), LAZY_WRITE_DELAY_MS).unref();
  }

  /** Replaces the whole content; appends made meanwhile come after it. */
  replace(content: () => Iterable<Buffer>): Promise<void> {
    return this.#enqueue(async () => {
      const temporary = `${this.#path}.new`;
      const flags = constants.O_RDWR | constants.O_CREAT | constants.O_TRUNC | constants.O_DSYNC;
      const file = await open(temporary, flags, 0o600);
      // Taken at once, after the wait above let every append before this one be applied by its caller.
      const bytes = Buffer.concat([...content()]);
      try {
        await file.writeFile(bytes);
        await file.sync();
        await rename(temporary, this.#path);
      } catch (error: unknown) {
        await file.close();
        throw error;
      }
      // The name is that of the new file now, whatever the disk says of the folder: what went to the former would be lost.
      const former = this.#file;
      this.#file = file;
      this.#end = bytes.length;
      this.#roomTo = bytes.length;
      this.#hasRemains = false;
      this.#isFolderBehind = true;
      await former.close();
      await this.#syncFolder();
    });
  }

  async close(): Promise<void> {
    clearTimeout(this.#lazyTimer);
    this.#schedule();
    await this.#enqueue(async () => {
      // A disk that refuses this leaves zeros, which are no record.
      if (this.#roomTo > this.#end) await this.#file.truncate(this.#end).catch(() => {});
      await this.#file.close();
    });
  }

  #enqueue(task: () => Promise<void>): Promise<void> {
    const done = this.#work.then(task);
    this.#work = done.catch(() => {});
    return done;
  }

  #schedule(): void {
    if (this.#writeScheduled) return;
    this.#writeScheduled = true;
    void this.#enqueue(() => this.#writeGroup());
  }

  async #writeGroup(): Promise<void> {
    this.#writeScheduled = false;
    const group = this.#pending;
    const lazy = this.#lazy;
    this.#pending = [];
    this.#lazy = [];
    this.#lazyBytes = 0;
    clearTimeout(this.#lazyTimer);
    this.#lazyTimer = undefined;
    if (group.length + lazy.length === 0) return;
    const bytes = Buffer.concat([...lazy, ...group.map((append) => append.bytes)]);
    const beganMs = performance.now();
    const written = await this.#write(bytes);
    if (written) this.#onWrite(performance.now() - beganMs, bytes.length);
    for (const append of group) append.resolve(written);
    const isShort = this.#end >= ROOM_FROM_BYTES && this.#roomTo - this.#end < ROOM.length / 2;
    if (written && isShort) void this.#enqueue(() => this.#makeRoom());
  }

  /** Where the disk refuses it, the next record is told so itself. */
  async #makeRoom(): Promise<void> {
    const from = Math.max(this.#roomTo, this.#end);
    try {
      const { bytesWritten } = await this.#file.write(ROOM, 0, ROOM.length, from);
      this.#roomTo = from + bytesWritten;
    } catch {
      this.#roomTo = from;
    }
  }

  /** The file is open for synchronised writes: a write that is done is on disk, with one trip to the disk's thread. */
  async #write(bytes: Buffer): Promise<boolean> {
    try {
      if (this.#isFolderBehind) await this.#syncFolder();
      if (this.#hasRemains) await this.#cutRemains();
      for (let done = 0; done < bytes.length; ) {
        const { bytesWritten } = await this.#file.write(bytes, done, bytes.length - done, this.#end + done);
        done += bytesWritten;
      }
      this.#end += bytes.length;
      return true;
    } catch {
      this.#hasRemains = true;
      await this.#cutRemains().catch(() => {});
      return false;
    }
  }

  async #syncFolder(): Promise<void> {
    await syncDirectory(dirname(this.#path));
    this.#isFolderBehind = false;
  }

  /** A record that was refused, but got to the disk, would be found behind a later one that is as long as what lay before it. */
  async #cutRemains(): Promise<void> {
    await this.#file.truncate(this.#end);
    await this.#file.sync();
    this.#roomTo = this.#end;
    this.#hasRemains = false;
  }
}

/** Bytes of a record that is not whole: zeros at the end are room, but for so few that a length may begin with them. */
function tornBytesOf(rest: Buffer): number {
  if (rest.length < LENGTH_BYTES) return rest.length;
  return rest.findLastIndex((byte) => byte !== 0) + 1;
}

async function syncDirectory(path: string): Promise<void> {
  const directory = await open(path, 'r');
  try {
    await directory.sync();
  } finally {
    await directory.close();
  }
}
