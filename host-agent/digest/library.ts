/** The compiled part of a digest: loaded once, when the agent starts. */
import { createRequire } from 'node:module';
import { failure, type Outcome, success } from '../../shared/errors.ts';

/** Each takes a state of `STATE_BYTES`, which it reads and, but for `finish`, writes. */
export interface DigestLibrary {
  begin(state: Uint8Array): void;
  update(state: Uint8Array, bytes: Uint8Array): void;
  /** Writes the 32 bytes of the digest. */
  finish(state: Uint8Array, digest: Uint8Array): void;
}

let loaded: DigestLibrary | undefined;

/** Loads what set-up has compiled at `path`; again, with the same or another path: the former stays. */
export function loadDigestLibrary(path: string): Outcome<null> {
  try {
    const library: unknown = createRequire(import.meta.url)(path);
    if (!isDigestLibrary(library)) return failure('sandbox_failed', `${path} is not the digest library`);
    loaded ??= library;
    return success(null);
  } catch (error: unknown) {
    const reason = error instanceof Error ? error.message : 'unknown fault';
    return failure('sandbox_failed', `the digest library was not loaded: ${reason}`);
  }
}

/** Throws where none was loaded: nothing that streams begins before that. */
export function digestLibrary(): DigestLibrary {
  if (loaded === undefined) throw new Error('the digest library was not loaded');
  return loaded;
}

function isDigestLibrary(value: unknown): value is DigestLibrary {
  if (typeof value !== 'object' || value === null) return false;
  const members = new Map(Object.entries(value));
  return ['begin', 'update', 'finish'].every((name) => typeof members.get(name) === 'function');
}
