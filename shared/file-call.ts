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

export interface FileCall {
  operation: string;
  path: string;
  recursive?: boolean;
  mode?: number;
}

export function fileCallOf(request: FileRequest): FileCall {
  const bytes = fromBase64(request.path) ?? new Uint8Array(0);
  const call = {
    operation: OPERATIONS[request.operation],
    path: new TextDecoder('utf-8', { fatal: false, ignoreBOM: true }).decode(bytes),
  };
  switch (request.operation) {
    case 'delete':
      return { ...call, recursive: request.recursive };
    case 'write':
      return request.mode === null ? call : { ...call, mode: request.mode };
    case 'read':
    case 'list':
    case 'archive':
    case 'extract':
    case 'watch':
      return call;
  }
}

/** Arguments that a transfer has as the call has them, or has not. The bytes and their range it has otherwise. */
export function isOfTransfer(argument: string): boolean {
  return OF_TRANSFERS.has(argument);
}

const OF_TRANSFERS: ReadonlySet<string> = new Set([
  '/operation',
  '/path',
  '/destination',
  '/recursive',
  '/mode',
]);
