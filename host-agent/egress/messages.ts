/** Messages of the proxy port in the guest: u8 kind | u32 connection | body, each behind its length, both ways. */
import { lengthPrefixed } from '../guest-link/length-prefixed.ts';

/** What either side takes of one connection before it gives credit; the guest's queue has this size. */
export const CONNECTION_WINDOW_BYTES = 64 * 1024;
/** The guest accepts no more at once. */
export const MAX_CONNECTIONS = 64;
export const MAX_DATA_BYTES = 32 * 1024;
const HEAD_BYTES = 5;
export const MAX_BODY_BYTES = HEAD_BYTES + MAX_DATA_BYTES;

const KIND = { ready: 1, open: 2, data: 3, end: 4, closed: 5, credit: 6 } as const;

export type GuestMessage =
  /** `errno` 0: the port listens. */
  | { readonly kind: 'ready'; readonly errno: number }
  | { readonly kind: 'open' | 'end' | 'closed'; readonly connection: number }
  | { readonly kind: 'data'; readonly connection: number; readonly bytes: Buffer }
  | { readonly kind: 'credit'; readonly connection: number; readonly bytes: number };

/** Undefined for what is not the protocol. */
export function parseGuestMessage(body: Buffer): GuestMessage | undefined {
  if (body.length < HEAD_BYTES) return undefined;
  const connection = body.readUInt32BE(1);
  const rest = body.subarray(HEAD_BYTES);
  switch (body[0]) {
    case KIND.ready:
      return rest.length === 4 ? { kind: 'ready', errno: rest.readUInt32BE(0) } : undefined;
    case KIND.open:
      return rest.length === 0 ? { kind: 'open', connection } : undefined;
    case KIND.data:
      return rest.length > 0 ? { kind: 'data', connection, bytes: rest } : undefined;
    case KIND.end:
      return rest.length === 0 ? { kind: 'end', connection } : undefined;
    case KIND.closed:
      return rest.length === 0 ? { kind: 'closed', connection } : undefined;
    case KIND.credit:
      return rest.length === 4 ? { kind: 'credit', connection, bytes: rest.readUInt32BE(0) } : undefined;
    default:
      return undefined;
  }
}

function message(kind: number, connection: number, body: Uint8Array): Buffer {
  const head = Buffer.alloc(HEAD_BYTES);
  head.writeUInt8(kind, 0);
  head.writeUInt32BE(connection, 1);
  return lengthPrefixed(Buffer.concat([head, body]));
}

const NOTHING = Buffer.alloc(0);

export const dataMessage = (connection: number, bytes: Uint8Array): Buffer =>
  message(KIND.data, connection, bytes);
/** Nothing more comes this way. */
export const endMessage = (connection: number): Buffer => message(KIND.end, connection, NOTHING);
/** Cuts the connection. */
export const closeMessage = (connection: number): Buffer => message(KIND.closed, connection, NOTHING);

export function creditMessage(connection: number, bytes: number): Buffer {
  const body = Buffer.alloc(4);
  body.writeUInt32BE(bytes, 0);
  return message(KIND.credit, connection, body);
}
