/** Cursor of a list of sessions or workflows: the place of the last entry given. */
import * as z from 'zod';
import { fromBase64Url, toBase64Url, utf8 } from '../../../shared/encoding.ts';

const CursorSchema = z.tuple([z.iso.datetime(), z.string().max(64)]);

export interface ListPosition {
  createdAt: string;
  id: string;
}

export function formatListCursor(position: ListPosition): string {
  return toBase64Url(utf8(JSON.stringify([position.createdAt, position.id])));
}

export function parseListCursor(text: string): ListPosition | undefined {
  const bytes = fromBase64Url(text);
  if (bytes === undefined) return undefined;
  try {
    const parsed = CursorSchema.safeParse(JSON.parse(new TextDecoder().decode(bytes)));
    return parsed.success ? { createdAt: parsed.data[0], id: parsed.data[1] } : undefined;
  } catch {
    return undefined;
  }
}
