/**
 * The root file system of an image as one file that gVisor reads by itself: an EROFS image of the tree with the guest
 * programs in it. All sandboxes of an image map the same file, so the host holds each page of it once.
 */
import { open } from 'node:fs/promises';
import { dirname, join } from 'node:path';

export interface RootFile {
  path: string;
  /** Equal where the contents lie equally in two files: a checkpoint goes on with a file of the same id only. */
  id: string;
}

const ROOTS_DIR = 'roots';
const SUPERBLOCK_OFFSET = 1024;
const SUPERBLOCK_BYTES = 128;
const MAGIC = 0xe0f5e1e2;
const BLOCKS_AT = 36;
const ID_AT = 48;
const ID_BYTES = 16;
const INCOMPATIBLE_FEATURES_AT = 80;
const BLOCK_BYTES = 4096;

/** Beside the tree, and so removed with the image. */
export function rootsDir(rootfsPath: string): string {
  return join(dirname(rootfsPath), ROOTS_DIR);
}

/** One for each set of guest programs: an agent of another version may be running yet. */
export function rootPath(rootfsPath: string, guest: string): string {
  return join(rootsDir(rootfsPath), `${guest}.erofs`);
}

/** Undefined where there is none, or one that is not whole or that gVisor could not read. */
export async function readRootFile(path: string): Promise<RootFile | undefined> {
  const superblock = Buffer.alloc(SUPERBLOCK_BYTES);
  try {
    await using file = await open(path, 'r');
    await file.read(superblock, 0, SUPERBLOCK_BYTES, SUPERBLOCK_OFFSET);
    const { size } = await file.stat();
    if (superblock.readUInt32LE(0) !== MAGIC || superblock.readUInt32LE(INCOMPATIBLE_FEATURES_AT) !== 0)
      return undefined;
    if (size < superblock.readUInt32LE(BLOCKS_AT) * BLOCK_BYTES) return undefined;
  } catch {
    return undefined;
  }
  return { path, id: superblock.toString('hex', ID_AT, ID_AT + ID_BYTES) };
}

/** As the program that makes the file takes it. */
export function uuidOf(id: string): string {
  return id.replace(/^(.{8})(.{4})(.{4})(.{4})/, '$1-$2-$3-$4-');
}
