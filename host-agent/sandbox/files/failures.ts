/** Failures of the guest's file server as those of the API, with the path that they are about. */
import type { ErrorCode, Failure } from '../../../shared/errors.ts';
import { failure } from '../../../shared/errors.ts';
import type { GuestFailure } from '../../guest-link/failure.ts';

const BY_ERRNO = new Map<string, { code: ErrorCode; text: string }>([
  ['ENOENT', { code: 'not_found', text: 'no such file or directory' }],
  ['EISDIR', { code: 'is_directory', text: 'it is a directory' }],
  ['ENOTDIR', { code: 'not_a_directory', text: 'it, or a part of the path, is not a directory' }],
  ['EEXIST', { code: 'file_refused', text: 'it exists already' }],
  ['ENOTEMPTY', { code: 'directory_not_empty', text: 'the directory is not empty' }],
  ['EACCES', { code: 'permission_denied', text: 'permission denied' }],
  ['EPERM', { code: 'permission_denied', text: 'operation not permitted' }],
  ['EROFS', { code: 'permission_denied', text: 'the file system is read-only' }],
  ['ENOSPC', { code: 'no_space', text: 'no space left on the disk of the sandbox' }],
  ['EDQUOT', { code: 'no_space', text: 'no space left on the disk of the sandbox' }],
  ['EFBIG', { code: 'payload_too_large', text: 'the file is too large for the sandbox' }],
  ['ELOOP', { code: 'file_refused', text: 'too many levels of symbolic links' }],
  ['ENAMETOOLONG', { code: 'file_refused', text: 'the name is too long' }],
  ['EBUSY', { code: 'file_refused', text: 'it is in use' }],
  ['EINVAL', { code: 'file_refused', text: 'the name is not one that the file system takes' }],
  ['not_regular', { code: 'not_a_regular_file', text: 'it is not a regular file' }],
  ['changed', { code: 'precondition_failed', text: 'it was changed meanwhile' }],
  ['outside', { code: 'archive_refused', text: 'an entry leads out of the folder' }],
  ['no_archive', { code: 'archive_refused', text: 'not a tar archive, or one that ends too early' }],
  ['ECANCELED', { code: 'transfer_failed', text: 'the transfer was cut' }],
]);

export function fileFailure(problem: GuestFailure, path: Uint8Array, isArchive = false): Failure {
  const shown = JSON.stringify(new TextDecoder().decode(path)).slice(0, 4_200);
  if (problem.reason !== 'file') return serverFailure(problem, shown);
  const known = BY_ERRNO.get(problem.errno ?? '');
  const text = known?.text ?? problem.errno ?? 'it failed';
  // Of an archive the message names the entry: that, and not the folder, is what went wrong.
  const entry = isArchive ? problem.message.match(/^(".*"): /)?.[1] : undefined;
  const code = known?.code ?? 'file_refused';
  const isOfEntry = entry !== undefined && entry !== '""';
  if (!isOfEntry) return failure(code, `${shown}: ${text}`);
  const isRefused = code === 'not_a_regular_file' || code === 'not_found' || code === 'file_refused';
  return failure(isRefused ? 'archive_refused' : code, `${shown}: entry ${entry}: ${text}`);
}

function serverFailure(problem: GuestFailure, shown: string): Failure {
  if (problem.reason === 'spawn_failed')
    return failure('overloaded', `${shown}: the sandbox is at its limit of processes or memory`);
  if (problem.reason === 'limit') return failure('overloaded', `${shown}: too much at once`);
  return failure('transfer_failed', `${shown}: the file server of the sandbox ended`);
}
