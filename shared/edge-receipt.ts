/**
 * Receipts of calls that no host ran: of tools that the edge calls itself, and of answers that a caller gave to a program.
 * The edge signs them alone. They are a chain of their own per session, and each names the head of the hosts' chain at its
 * time. Never arguments or results.
 */
import * as z from 'zod';
import { CallNumberSchema } from './code-mode.ts';
import { ExecutionIdSchema, KeyIdSchema, SessionIdSchema, Sha256Schema } from './ids.ts';
import { TerminalStatusSchema } from './lifecycle.ts';

export const EDGE_RECEIPT_PAYLOAD_TYPE = 'application/vnd.sandgate.edge-receipt.v1+json';

export const EdgeReceiptSchema = z.strictObject({
  v: z.literal(1),
  receipt_id: z.string().regex(/^rct_[A-Za-z0-9_-]{22}$/),
  /** Origin of the edge. */
  issuer: z.string().max(2_048),
  execution_id: ExecutionIdSchema,
  /** The program that made the call, and the number of the call in it. */
  parent: z.strictObject({ execution_id: ExecutionIdSchema, call: CallNumberSchema }).nullable(),
  tenant_sha256: Sha256Schema,
  session_id: SessionIdSchema,
  epoch: z.int().min(1),
  /** Position in the session's chain of these, from 1 without gaps. */
  seq: z.int().min(1),
  /** SHA-256 of the payload bytes of the one before; 64 zeros for the first. */
  prev_sha256: Sha256Schema,
  /** Head of the hosts' chain when the call ended; 0 and 64 zeros before its first receipt. */
  host_chain: z.strictObject({ seq: z.int().min(0), sha256: Sha256Schema }),
  tool: z.string(),
  tool_version: z.string(),
  /** Of the JSON of the arguments. */
  args_sha256: Sha256Schema,
  /** Who did what the tool does: the edge, or the caller of the program, whose answer it is. */
  performed_by: z.enum(['edge', 'caller']),
  limits: z.strictObject({ timeout_ms: z.int().min(1).nullable() }),
  status: TerminalStatusSchema,
  /** Of the JSON of what the call gave: its data, else its text, else its error `{code, message}`. */
  result: z.strictObject({ sha256: Sha256Schema, bytes: z.int().min(0) }),
  usage: z.strictObject({ wall_ms: z.number().min(0) }),
  started_at: z.iso.datetime(),
  finished_at: z.iso.datetime(),
  key_id: KeyIdSchema,
});
export type EdgeReceipt = z.infer<typeof EdgeReceiptSchema>;
