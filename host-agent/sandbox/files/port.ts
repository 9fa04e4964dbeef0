/** Files of a sandbox as streams, beside whatever runs in it. Paths are bytes and are resolved inside the sandbox. */
import type { Outcome } from '../../../shared/errors.ts';
import type { FileChange, FileFacts } from '../../../shared/transfer.ts';

export interface Piece {
  offset: number;
  length: number;
}

/** Rejects where nobody takes more: the stream ends then. Until it resolves the guest waits. */
export type TakeBytes = (bytes: Uint8Array) => Promise<void>;

/** `signal`: nobody waits any more. What was begun is undone, and a guest that does not answer is not waited for. */
interface Request {
  path: Uint8Array;
  signal: AbortSignal;
}

export interface ReadRequest extends Request {
  /** Is told what the file is, and says which piece of it is wanted; `undefined` for nothing. */
  choose: (facts: FileFacts) => Piece | undefined;
  onBytes: TakeBytes;
}

export interface WriteRequest extends Request {
  mode: number | null;
  /** Replaces only what `accept` was told of. */
  guarded: boolean;
  /** Is told what is there, null for nothing; where it says no, nothing is written. */
  accept: (before: FileFacts | null) => boolean;
  /** Where it throws, what was there before stays. */
  content: AsyncIterable<Uint8Array>;
}

export interface ListRequest extends Request {
  cursor: number;
  limit: number;
}

export interface ListedFile extends FileFacts {
  name: Uint8Array;
}

export interface SandboxFiles {
  read(request: ReadRequest): Promise<Outcome<{ bytes: number }>>;
  write(
    request: WriteRequest,
  ): Promise<Outcome<{ bytes: number; created: boolean; facts: FileFacts } | null>>;
  list(request: ListRequest): Promise<Outcome<{ entries: ListedFile[]; nextCursor: number | null }>>;
  delete(request: Request & { recursive: boolean }): Promise<Outcome<{ deleted: number }>>;
  /** A folder as a tar archive; `onBegin` once it is known to be one. */
  archive(
    request: Request & { onBegin: () => void; onBytes: TakeBytes },
  ): Promise<Outcome<{ bytes: number; entries: number }>>;
  extract(
    request: Request & { onBegin: () => void; content: AsyncIterable<Uint8Array> },
  ): Promise<Outcome<{ entries: number }>>;
  /** Tells what changes directly in a folder, until the signal aborts. */
  watch(
    request: Request & { onBegin: () => void; onChanges: (changes: FileChange[]) => Promise<void> },
  ): Promise<Outcome<null>>;
}
