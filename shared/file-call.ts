/** What a transfer of a file comes to, as the call of the tool `file` that would do the same. */
import { fromBase64 } from './encoding.ts';
import type { FileOperation, FileRequest } from './transfer.ts';

const OPERATIONS: Record<FileOperation, string> = {
  read: 'read',
  write: 'write',
  list: 'list',
  delete: 'delete',
  archive: 'read',
  extract: 'write',
  watch: 'list',
};

export function fileCallOf({ operation, path }: FileRequest): { operation: string; path: string } {
  const bytes = fromBase64(path) ?? new Uint8Array(0);
  return {
    operation: OPERATIONS[operation],
    path: new TextDecoder('utf-8', { fatal: false, ignoreBOM: true }).decode(bytes),
  };
}
