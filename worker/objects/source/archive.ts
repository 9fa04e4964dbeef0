/** The files of a server in the object of its source: parts in rows, as a database takes them. */
import * as z from 'zod';
import { concatBytes } from '../../../shared/encoding.ts';
import { randomHandle, TenantSchema } from '../../../shared/ids.ts';
import { MAX_SOURCE_ARCHIVE_BYTES, ToolSourceNameSchema } from '../../../shared/tool-source.ts';
import type { SourceOwner } from './port.ts';
import type { SourceObjectStore } from './store.ts';

export const ARCHIVE_OWNER_HEADER = 'sandgate-source';
const PART_BYTES = 512 * 1024;

const OwnerSchema = z.strictObject({ tenant: TenantSchema, source: ToolSourceNameSchema });

export function archiveOwnerOf(request: Request): SourceOwner {
  return OwnerSchema.parse(JSON.parse(request.headers.get(ARCHIVE_OWNER_HEADER) ?? ''));
}

/** How many bytes it has; undefined where they are too many, or did not all come: then the one before stays. */
export async function takeArchive(
  store: SourceObjectStore,
  body: ReadableStream<Uint8Array> | null,
): Promise<number | undefined> {
  const upload = randomHandle();
  let held: Uint8Array[] = [];
  let heldBytes = 0;
  let bytes = 0;
  let part = 0;
  const flush = () => {
    if (heldBytes === 0) return;
    store.addArchivePart(upload, part, concatBytes(held));
    part += 1;
    held = [];
    heldBytes = 0;
  };
  try {
    for await (const chunk of body ?? []) {
      bytes += chunk.length;
      if (bytes > MAX_SOURCE_ARCHIVE_BYTES) break;
      held.push(chunk);
      heldBytes += chunk.length;
      if (heldBytes >= PART_BYTES) flush();
    }
    flush();
  } catch {
    bytes = Number.POSITIVE_INFINITY;
  }
  if (bytes > MAX_SOURCE_ARCHIVE_BYTES) {
    store.dropArchive(upload);
    return undefined;
  }
  store.keepArchive(upload);
  return bytes;
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
