/**
 * Ids of the events of a call's stream, for clients before 2026-07-28. An id names the call and how far its reader is, so
 * that nothing has to be stored for who comes back. A tag binds it to tenant and subject: one that was made up, altered or
 * taken from somebody else wakes nothing.
 */
import * as z from 'zod';
import { fromBase64Url, toBase64Url, utf8 } from '../../shared/encoding.ts';
import { parseCursor } from '../../shared/execution.ts';
import type { Caller } from '../objects/caller.ts';
import { MCP_RESUMABLE_MS } from '../objects/mcp-calls/port.ts';
import { callerTag, hasCallerTag } from './caller-tag.ts';
import { TakenCallSchema } from './taken-call.ts';

const TokenSchema = z.union([z.string(), z.number()]);

export const StreamPointSchema = z.strictObject({
  call: TakenCallSchema,
  requestId: TokenSchema,
  /** Of a client that asked for progress. */
  progressToken: TokenSchema.nullable(),
  /** Names the call among those of its client, which have an MCP session or none. */
  callId: z.string(),
  mcpSessionId: z.string().nullable(),
  takenAtMs: z.int(),
  /** How far in the events of the execution, and behind how much progress. */
  cursor: z.string().refine((text) => parseCursor(text) !== undefined),
  characters: z.number(),
  /** Behind all of its progress: what is left is the answer. */
  isLast: z.boolean(),
});
export type StreamPoint = z.infer<typeof StreamPointSchema>;

/** A client may choose long ids for its requests: those of their events would be as long, and are headers later. */
const MAX_ID_CHARACTERS = 2_048;
const FORM = /^([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]{16})$/;

/** Undefined where it would be too long. */
export async function eventIdOf(
  tagKey: CryptoKey,
  caller: Caller,
  point: StreamPoint,
): Promise<string | undefined> {
  const text = toBase64Url(utf8(JSON.stringify(point)));
  const id = `${text}.${await callerTag(tagKey, caller, { kind: 'mcp-event', text })}`;
  return id.length > MAX_ID_CHARACTERS ? undefined : id;
}

/** Undefined for an id that is none of this caller, or is too old. */
export async function pointOf(
  id: string,
  { tagKey, caller, nowMs }: { tagKey: CryptoKey; caller: Caller; nowMs: number },
): Promise<StreamPoint | undefined> {
  if (id.length > MAX_ID_CHARACTERS) return undefined;
  const [, text = '', tag = ''] = FORM.exec(id) ?? [];
  if (!(await hasCallerTag(tagKey, caller, { kind: 'mcp-event', text, tag }))) return undefined;
  const written: unknown = JSON.parse(new TextDecoder().decode(fromBase64Url(text)));
  // Former versions of this program may have written other fields.
  const { data: point } = StreamPointSchema.safeParse(written);
  return point !== undefined && nowMs < point.takenAtMs + MCP_RESUMABLE_MS ? point : undefined;
}
