/**
 * Uploads under way in this isolate. Each holds a part in the memory that the requests of all tenants share, so only so many
 * are let in at once.
 */
import { failure, type Outcome, success } from '../../shared/errors.ts';

const MAX_OPEN = 8;
/** So that no tenant takes all places for itself. */
const MAX_OPEN_OF_TENANT = 4;
/** A place is waited for, because most uploads are short. */
const WAIT_MS = 10_000;
const LOOK_MS = 100;
/** A request whose client left may be cut off without a word: its place is free when nothing was heard of it for so long. */
const LOST_AFTER_MS = 60_000;
/** Those who are refused at one moment do not come back at one moment. */
const RETRY_AFTER_S = { least: 5, spread: 10 };

export interface UploadPlace {
  /** Called as the upload goes on; one that was not heard of for a minute loses its place. */
  heard: () => void;
  leave: () => void;
}

interface OpenUpload {
  tenant: string;
  heardAtMs: number;
}

const open = new Set<OpenUpload>();

/** Waits until there is room, and takes none of it: for what is better refused before anything is done for it. */
export function uploadRoom(tenant: string): Promise<Outcome<null>> {
  return whenRoom(tenant, () => null);
}

export function uploadPlace(tenant: string): Promise<Outcome<UploadPlace>> {
  return whenRoom(tenant, () => enter(tenant));
}

async function whenRoom<T>(tenant: string, give: () => T): Promise<Outcome<T>> {
  const untilMs = Date.now() + WAIT_MS;
  while (!hasRoomFor(tenant)) {
    if (Date.now() >= untilMs) {
      return failure('overloaded', 'too many uploads are open here; this one was not stored', {
        retry_after_s: RETRY_AFTER_S.least + Math.floor(Math.random() * RETRY_AFTER_S.spread),
      });
    }
    // Looked at again and again: what another request resolves may belong to one that is gone.
    await scheduler.wait(LOOK_MS);
  }
  return success(give());
}

function enter(tenant: string): UploadPlace {
  const upload = { tenant, heardAtMs: Date.now() };
  open.add(upload);
  return {
    heard: () => {
      upload.heardAtMs = Date.now();
    },
    leave: () => open.delete(upload),
  };
}

function hasRoomFor(tenant: string): boolean {
  const lostBeforeMs = Date.now() - LOST_AFTER_MS;
  let ofTenant = 0;
  for (const upload of open) {
    if (upload.heardAtMs < lostBeforeMs) open.delete(upload);
    else if (upload.tenant === tenant) ofTenant += 1;
  }
  return open.size < MAX_OPEN && ofTenant < MAX_OPEN_OF_TENANT;
}
