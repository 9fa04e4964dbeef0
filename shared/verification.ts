/** What a verifier of receipts trusts, and why it refuses one. */
import * as z from 'zod';
import { HostIdSchema } from './ids.ts';
import { DatedKeySchema } from './key-set.ts';

/** Public keys that a verifier trusts: those of the edge, which counter-signs or signs, and those of hosts. */
export const TrustedKeysSchema = z.object({
  edge: z.array(DatedKeySchema),
  hosts: z.array(DatedKeySchema.extend({ host_id: HostIdSchema })),
});
export type TrustedKeys = z.infer<typeof TrustedKeysSchema>;

export type VerificationCode =
  | 'envelope_malformed'
  | 'payload_type_unknown'
  | 'payload_encoding'
  | 'payload_malformed'
  | 'payload_duplicate_key'
  | 'signature_missing'
  | 'host_signature_missing'
  | 'edge_signature_missing'
  | 'key_unknown'
  | 'key_of_other_host'
  | 'key_not_valid_then'
  | 'key_revoked'
  | 'signature_invalid'
  | 'chain_gap'
  | 'chain_fork'
  | 'chain_broken'
  | 'chain_other_session'
  | 'anchor_mismatch'
  | 'call_repeated'
  | 'execution_mismatch'
  | 'session_mismatch'
  | 'tenant_mismatch'
  | 'grant_mismatch'
  | 'args_mismatch'
  | 'output_mismatch'
  | 'truncation_hidden';

export interface VerificationFailure {
  ok: false;
  code: VerificationCode;
  detail: string;
  /** Position in the chain, where a chain was verified. */
  seq?: number;
}
export type Verified<T> = { ok: true; value: T } | VerificationFailure;

export function refuse(code: VerificationCode, detail: string): VerificationFailure {
  return { ok: false, code, detail };
}
