/** The files of a server in the object of its source: parts in rows, as a database takes them. */
import * as z from 'zod';
import { concatBytes } from '../../../shared/encoding.ts';
import { type Failure, failure, type Outcome, success } from '../../../shared/errors.ts';
import { randomHandle, TenantSchema } from '../../../shared/ids.ts';
import {
  MAX_SOURCE_ARCHIVE_BYTES,
  type ToolSource,
  ToolSourceNameSchema,
} from '../../../shared/tool-source.ts';
import type { SourceOwner } from './port.ts';
import type { SourceObjectStore } from './store.ts';

export const ARCHIVE_OWNER_HEADER = 'sandgate-source';
const PART_BYTES = 512 * 1024;

const OwnerSchema = z.strictObject({ tenant: TenantSchema, source: ToolSourceNameSchema });

export function archiveOwnerOf(request: Request): SourceOwner {
  return OwnerSchema.parse(JSON.parse(request.headers.get(ARCHIVE_OWNER_HEADER) ?? ''));
}

/** How many bytes it has. `mayKeep` is asked when all of them are there; where it fails, the archive before stays. */
export async function takeArchive(
  store: SourceObjectStore,
  body: ReadableStream<Uint8Array> | null,
  mayKeep: () => Promise<Outcome<null>>,
): Promise<Outcome<number>> {
  const upload = randomHandle();
  const kept = await keepParts(store, upload, await takeParts(store, upload, body), mayKeep);
  if (!kept.ok) store.dropArchive(upload);
  return kept;
}

async function keepParts(
  store: SourceObjectStore,
  upload: string,
  taken: Outcome<{ bytes: number; parts: number }>,
  mayKeep: () => Promise<Outcome<null>>,
): Promise<Outcome<number>> {
  if (!taken.ok) return taken;
  const may = await mayKeep();
  if (!may.ok) return may;
  const { bytes, parts } = taken.value;
  return store.keepArchive(upload, parts)
    ? success(bytes)
    : failure('transfer_failed', 'another archive was put meanwhile', { retry_after_s: 1 });
}

async function takeParts(
  store: SourceObjectStore,
  upload: string,
  body: ReadableStream<Uint8Array> | null,
): Promise<Outcome<{ bytes: number; parts: number }>> {
  let held: Uint8Array[] = [];
  let heldBytes = 0;
  let bytes = 0;
  let parts = 0;
  const flush = () => {
    if (heldBytes === 0) return;
    store.addArchivePart(upload, parts, concatBytes(held));
    parts += 1;
    held = [];
    heldBytes = 0;
  };
  try {
    for await (const chunk of body ?? []) {
      bytes += chunk.length;
      if (bytes > MAX_SOURCE_ARCHIVE_BYTES)
        return failure('payload_too_large', `an archive of at most ${MAX_SOURCE_ARCHIVE_BYTES} bytes`);
      held.push(chunk);
      heldBytes += chunk.length;
      if (heldBytes >= PART_BYTES) flush();
    }
    flush();
  } catch {
    return failure('transfer_failed', 'the archive ended before its end');
  }
  return success({ bytes, parts });
}

/** Files decide what the program does: secrets that were given to the former ones are not for the new ones. */
export function archiveFault(source: ToolSource): Failure | undefined {
  if (source.kind !== 'mcp_stdio' || source.env_names.length === 0) return undefined;
  const expected =
    'taken away before its files change (a PUT of the source with env: {}), and given again then';
  return failure('invalid_request', 'the source has an environment that other files would get', {
    violations: [{ path: 'source.env', expected }],
  });
}

export function archiveStream(store: SourceObjectStore): ReadableStream<Uint8Array> | null {
  if (store.archivePart(0) === undefined) return null;
  let part = 0;
  return new ReadableStream({
    type: 'bytes',
    pull: (controller) => {
      const bytes = store.archivePart(part);
      part += 1;
      if (bytes === undefined) {
        controller.close();
        // A reader that brought a buffer of its own waits for it.
        controller.byobRequest?.respond(0);
      } else controller.enqueue(bytes);
    },
  });
}
