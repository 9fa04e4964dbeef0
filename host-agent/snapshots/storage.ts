/** The edge's storage of one snapshot, over HTTP: whole chunks, tried again where that can help, within bounds. */
import { createHash, hash } from 'node:crypto';
import { setTimeout as wait } from 'node:timers/promises';
import { request } from 'undici';
import { type Failure, failure, type Outcome, success } from '../../shared/errors.ts';
import {
  MAX_MANIFEST_BYTES,
  MAX_STORED_CHUNK_BYTES,
  snapshotChunkPath,
  snapshotManifestPath,
} from '../../shared/snapshot.ts';
import type { KeptChunks } from './kept-chunks.ts';

/** Pauses of 3 s in all. */
const ATTEMPTS = 5;
/** Pauses of half a minute in all. */
export const PATIENT_ATTEMPTS = 11;
const FIRST_PAUSE_MS = 200;
/** In first pauses. */
const LONGEST_PAUSE = 25;
const REQUEST_TIMEOUT_MS = 60_000;
const MAX_REFUSAL_BYTES = 64 * 1024;

export interface StorageOptions {
  edgeUrl: string;
  snapshotId: string;
  /** What is kept here is not asked for, and what is stored there is kept here. */
  kept?: KeptChunks;
  /** Bearer of the transfer token, which says what may be done. */
  token: string;
  signal: AbortSignal;
  /** Of each request, before the storage is taken to be away. */
  attempts?: number;
  firstPauseMs?: number;
}

interface Answer {
  status: number;
  bytes: Uint8Array<ArrayBuffer>;
  /** Of the bytes, in hexadecimal. */
  sha256: string;
}

export class SnapshotStorage {
  readonly #options: StorageOptions;

  constructor(options: StorageOptions) {
    this.#options = options;
  }

  /** `isKept`: here too, where anything is. */
  putChunk(sha256: string, stored: Uint8Array, { isKept = true } = {}): Promise<Outcome<null>> {
    return this.#put(snapshotChunkPath(this.#options.snapshotId, sha256), { sha256, stored, isKept });
  }

  putManifest(sha256: string, stored: Uint8Array): Promise<Outcome<null>> {
    const path = snapshotManifestPath(this.#options.snapshotId);
    return this.#put(path, { sha256, stored, isKept: true });
  }

  /** What hashes to its name. */
  getChunk(sha256: string): Promise<Outcome<Uint8Array<ArrayBuffer>>> {
    const maxBytes = MAX_STORED_CHUNK_BYTES;
    return this.#get(snapshotChunkPath(this.#options.snapshotId, sha256), { sha256, maxBytes });
  }

  getManifest(sha256: string): Promise<Outcome<Uint8Array<ArrayBuffer>>> {
    const maxBytes = MAX_MANIFEST_BYTES;
    return this.#get(snapshotManifestPath(this.#options.snapshotId), { sha256, maxBytes });
  }

  async #put(
    path: string,
    { sha256, stored, isKept }: { sha256: string; stored: Uint8Array; isKept: boolean },
  ): Promise<Outcome<null>> {
    const [answer] = await Promise.all([
      this.#ask('PUT', path, { body: stored, maxBytes: MAX_REFUSAL_BYTES }),
      isKept ? this.#options.kept?.put(sha256, stored) : undefined,
    ]);
    return answer.ok ? success(null) : answer;
  }

  async #get(
    path: string,
    { sha256, maxBytes }: { sha256: string; maxBytes: number },
  ): Promise<Outcome<Uint8Array<ArrayBuffer>>> {
    const { kept } = this.#options;
    const here = await kept?.get(sha256);
    if (here !== undefined && hash('sha256', here) === sha256) return success(here);
    if (here !== undefined) await kept?.drop([sha256]);
    const answer = await this.#ask('GET', path, { maxBytes });
    if (!answer.ok) return answer;
    return answer.value.sha256 === sha256
      ? success(answer.value.bytes)
      : failure('snapshot_damaged', 'what is stored does not hash to its name');
  }

  /** A PUT names what it stores by its content, so one that is repeated stores nothing twice. */
  async #ask(
    method: 'PUT' | 'GET',
    path: string,
    how: { body?: Uint8Array; maxBytes: number },
  ): Promise<Outcome<Answer>> {
    const { signal, attempts = ATTEMPTS, firstPauseMs = FIRST_PAUSE_MS } = this.#options;
    let last: Failure = failure('storage_unavailable', 'the storage was not asked');
    for (let attempt = 1; attempt <= attempts && !signal.aborted; attempt += 1) {
      const answer = await this.#try(method, path, how);
      if (answer.ok && answer.value.status < 300) return answer;
      if (answer.ok && !mayPass(answer.value.status)) return refusal(method, answer.value);
      last = answer.ok ? refusal(method, answer.value) : answer;
      if (attempt === attempts) break;
      const pauseMs = firstPauseMs * Math.min(2 ** (attempt - 1), LONGEST_PAUSE);
      await wait(pauseMs, undefined, { signal }).catch(() => undefined);
    }
    return signal.aborted ? failure('storage_unavailable', 'the transfer was ended') : last;
  }

  async #try(
    method: 'PUT' | 'GET',
    path: string,
    { body, maxBytes }: { body?: Uint8Array; maxBytes: number },
  ): Promise<Outcome<Answer>> {
    const { edgeUrl, token, signal } = this.#options;
    try {
      const response = await request(new URL(path, edgeUrl), {
        method,
        headers: {
          authorization: `Bearer ${token}`,
          ...(body === undefined ? {} : { 'content-type': 'application/octet-stream' }),
        },
        body: body ?? null,
        signal: AbortSignal.any([signal, AbortSignal.timeout(REQUEST_TIMEOUT_MS)]),
      });
      const content = await bounded(response.body, maxBytes);
      if (content === undefined) return failure('storage_unavailable', 'the answer is too long');
      return success({ status: response.statusCode, ...content });
    } catch (error: unknown) {
      const detail = error instanceof Error ? error.message : 'the storage cannot be reached';
      return failure('storage_unavailable', `${method}: ${detail}`);
    }
  }
}

function mayPass(status: number): boolean {
  return status === 408 || status === 429 || status >= 500;
}

function refusal(method: string, { status }: Answer): Failure {
  // What is not there any more, or is not what was asked for, will not come back.
  const isDamage = method === 'GET' && (status === 404 || status === 410);
  return failure(isDamage ? 'snapshot_damaged' : 'storage_unavailable', `${method}: answered with ${status}`);
}

async function bounded(
  body: AsyncIterable<Uint8Array>,
  maxBytes: number,
): Promise<Pick<Answer, 'bytes' | 'sha256'> | undefined> {
  const digest = createHash('sha256');
  const parts: Uint8Array[] = [];
  let length = 0;
  for await (const part of body) {
    length += part.length;
    if (length > maxBytes) return undefined;
    digest.update(part);
    parts.push(part);
  }
  const bytes = new Uint8Array(length);
  let at = 0;
  for (const part of parts) {
    bytes.set(part, at);
    at += part.length;
  }
  return { bytes, sha256: digest.digest('hex') };
}
