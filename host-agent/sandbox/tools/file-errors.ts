/** Names of what can go wrong with a file, from the kernel's error numbers. */
import type { GuestFailure } from '../../guest-link/failure.ts';
import { failedEnd, guestFailureEnd, type ToolEnd } from './tool.ts';

const BY_ERRNO = new Map<string, { name: string; message: string }>([
  ['ENOENT', { name: 'FileNotFound', message: 'no such file or directory' }],
  ['EISDIR', { name: 'IsADirectory', message: 'it is a directory' }],
  ['ENOTDIR', { name: 'NotADirectory', message: 'a part of the path is not a directory' }],
  ['EEXIST', { name: 'FileExists', message: 'it exists already' }],
  ['ENOTEMPTY', { name: 'DirectoryNotEmpty', message: 'the directory is not empty' }],
  ['EACCES', { name: 'PermissionDenied', message: 'permission denied' }],
  ['EPERM', { name: 'PermissionDenied', message: 'operation not permitted' }],
  ['EROFS', { name: 'ReadOnlyFileSystem', message: 'the file system is read-only' }],
  ['ENOSPC', { name: 'NoSpaceLeft', message: 'no space left on device' }],
  ['EFBIG', { name: 'FileTooLarge', message: 'the file is too large' }],
  ['too_large', { name: 'FileTooLarge', message: 'the file is too large' }],
  ['ELOOP', { name: 'TooManyLinks', message: 'too many levels of symbolic links' }],
  ['ENAMETOOLONG', { name: 'NameTooLong', message: 'the file name is too long' }],
  ['EXDEV', { name: 'CrossDevice', message: 'source and destination are on different file systems' }],
  ['EBUSY', { name: 'FileBusy', message: 'it is in use' }],
  ['EINVAL', { name: 'InvalidArgument', message: 'invalid argument' }],
  ['not_regular', { name: 'NotARegularFile', message: 'it is not a regular file' }],
]);

export function fileFailureEnd(problem: GuestFailure, what: string): ToolEnd {
  if (problem.reason !== 'file') return guestFailureEnd(problem);
  const known = BY_ERRNO.get(problem.errno ?? '');
  if (known === undefined) return failedEnd('FileError', `${what}: ${problem.errno ?? problem.message}`);
  return failedEnd(known.name, `${what}: ${known.message}`);
}
