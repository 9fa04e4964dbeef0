/** Changes as inotify tells them, in the words of the API. */
import { toBase64 } from '../../../shared/encoding.ts';
import type { FileChange } from '../../../shared/transfer.ts';
import type { FolderChange } from '../../guest-link/file-transfer.ts';
import { decodeUtf8 } from '../tools/file-content.ts';

const KINDS: readonly [mask: number, change: FileChange['change']][] = [
  [0x100, 'created'],
  [0x200, 'deleted'],
  [0x2, 'modified'],
  [0x4, 'attributes'],
  [0x40, 'moved_from'],
  [0x80, 'moved_to'],
  [0x400, 'gone'],
  [0x800, 'gone'],
  [0x2000, 'gone'],
  [0x4000, 'lost'],
];
const IS_DIRECTORY = 0x4000_0000;

/** `lost`: more changed than could be kept; the folder has to be read anew. `gone`: it is no longer there. */
export function changeOf({ mask, name }: FolderChange): FileChange | undefined {
  const change = KINDS.find(([bit]) => (mask & bit) !== 0)?.[1];
  if (change === undefined) return undefined;
  return { change, ...nameOf(name), directory: (mask & IS_DIRECTORY) !== 0 };
}

/** A name that is not UTF-8 is given as its bytes. Of the folder itself there is none. */
export function nameOf(name: Uint8Array): { name?: string; name_base64?: string } {
  if (name.length === 0) return {};
  const text = decodeUtf8(name);
  return text === undefined ? { name_base64: toBase64(name) } : { name: text };
}
