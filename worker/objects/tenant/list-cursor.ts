/** Cursor of a session list: the place of the last entry given. */
import * as z from 'zod';
import { fromBase64Url, toBase64Url, utf8 } from '../../../shared/encoding.ts';
import { SessionIdSchema } from '../../../shared/ids.ts';
import type { ListPosition } from './store.ts';

const CursorSchema = z.tuple([z.iso.datetime(), SessionIdSchema]);

export function formatListCursor(position: ListPosition): string {
  return toBase64Url(utf8(JSON.stringify([position.createdAt, position.sessionId])));
}

export function parseListCursor(text: string): ListPosition | undefined {
  const bytes = fromBase64Url(text);
  if (bytes === undefined) return undefined;
  try {
    const parsed = CursorSchema.safeParse(JSON.parse(new TextDecoder().decode(bytes)));
    return parsed.success ? { createdAt: parsed.data[0], sessionId: parsed.data[1] } : undefined;
  } catch {
    return undefined;
  }
}
