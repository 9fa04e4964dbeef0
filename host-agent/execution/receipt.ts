/** Receipts: built of what the host saw, chained to the one before of the session, and signed. */
import { hash, type KeyObject, sign } from 'node:crypto';
import { type Envelope, preAuthenticationEncoding } from '../../shared/dsse.ts';
import { newId } from '../../shared/ids.ts';
import type { TerminalStatus } from '../../shared/lifecycle.ts';
import {
  type Artifact,
  NOTED_CLOCK_SKEW_MS,
  RECEIPT_PAYLOAD_TYPE,
  type Receipt,
} from '../../shared/receipt.ts';
import type { StartedEntry } from '../journal/entries.ts';
import type { ChainHead } from '../journal/state.ts';
import { NO_OUTPUT_SHA256, type StreamSummary } from './output-recorder.ts';

export interface HostFacts {
  hostId: string;
  runscVersion: string;
  runscPlatform: string;
  /** How far the clock of this host is ahead of the edge's; null where that is not known. */
  clockAheadMs: () => number | null;
}

export interface ExecutionEnd {
  status: TerminalStatus;
  exitCode: number | null;
  signal: string | null;
  reason: string | null;
  stateLost: boolean;
  usage: { cpuMs: number; wallMs: number; peakMemoryBytes: number; egressBytes: number };
  stdout: StreamSummary;
  stderr: StreamSummary;
  artifacts: Artifact[];
  finishedAt: string;
}

export interface ReceiptSigner {
  keyId: string;
  privateKey: KeyObject;
}

export interface SignedReceipt {
  envelope: Envelope;
  seq: number;
  sha256: string;
}

export function issueReceipt(
  started: StartedEntry,
  end: ExecutionEnd,
  by: { chain: ChainHead; host: HostFacts; signer: ReceiptSigner },
): SignedReceipt {
  const receipt: Receipt = {
    v: 1,
    receipt_id: newId('rct'),
    execution_id: started.execution_id,
    grant_jti: started.jti,
    grant_sha256: started.grant_sha256,
    tenant_sha256: hash('sha256', started.tenant),
    session_id: started.session_id,
    epoch: started.epoch,
    seq: by.chain.seq + 1,
    prev_sha256: by.chain.sha256,
    tool: started.tool,
    tool_version: started.tool_version,
    args_sha256: started.args_sha256,
    image: started.image,
    runsc_version: by.host.runscVersion,
    runsc_platform: by.host.runscPlatform,
    limits: started.limits,
    usage: {
      cpu_ms: Math.round(end.usage.cpuMs),
      wall_ms: Math.round(end.usage.wallMs),
      peak_memory_bytes: Math.round(end.usage.peakMemoryBytes),
      output_bytes: end.stdout.bytes + end.stderr.bytes,
      egress_bytes: end.usage.egressBytes,
    },
    status: end.status,
    exit_code: end.exitCode,
    signal: end.signal,
    reason: end.reason,
    state_lost: end.stateLost,
    stdout: end.stdout,
    stderr: end.stderr,
    artifacts: end.artifacts,
    granted_at: started.granted_at,
    started_at: started.started_at,
    finished_at: end.finishedAt,
    host_id: by.host.hostId,
    key_id: by.signer.keyId,
    ...(started.former_hosts === undefined ? {} : { former_hosts: started.former_hosts }),
    ...notedSkew(by.host.clockAheadMs()),
  };
  // Serialised once: these bytes are what is signed, sent, hashed into the chain and verified.
  const payload = Buffer.from(JSON.stringify(receipt), 'utf8');
  // Signed at once: a trip to another thread takes several times as long as the signature.
  const signature = sign(
    null,
    preAuthenticationEncoding(RECEIPT_PAYLOAD_TYPE, payload),
    by.signer.privateKey,
  );
  const envelope: Envelope = {
    payloadType: RECEIPT_PAYLOAD_TYPE,
    payload: payload.toString('base64'),
    signatures: [{ keyid: by.signer.keyId, sig: signature.toString('base64') }],
  };
  return { envelope, seq: receipt.seq, sha256: hash('sha256', payload) };
}

function notedSkew(aheadMs: number | null): Pick<Receipt, 'clock_ahead_ms'> {
  return aheadMs === null || Math.abs(aheadMs) <= NOTED_CLOCK_SKEW_MS ? {} : { clock_ahead_ms: aheadMs };
}

/** Of a stream whose bytes are not known: never to be read as whole. */
export const UNKNOWN_STREAM: StreamSummary = { sha256: NO_OUTPUT_SHA256, bytes: 0, truncated: true };
