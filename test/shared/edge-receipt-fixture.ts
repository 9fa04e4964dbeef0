/** Receipts that the edge signs alone, with keys made for the test run. */
import { sha256Hex } from '../../shared/digest.ts';
import { type Envelope, signEnvelope } from '../../shared/dsse.ts';
import { EDGE_RECEIPT_PAYLOAD_TYPE, type EdgeReceipt } from '../../shared/edge-receipt.ts';
import { utf8 } from '../../shared/encoding.ts';
import { newId } from '../../shared/ids.ts';
import { FIRST_PREVIOUS_SHA256 } from '../../shared/receipt.ts';
import { FINISHED_AT, payloadOf, type TestWorld } from './receipt-fixture.ts';

export async function makeEdgeReceipt(
  world: TestWorld,
  changes: Partial<EdgeReceipt> = {},
): Promise<EdgeReceipt> {
  return {
    v: 1,
    receipt_id: newId('rct'),
    issuer: 'https://edge.example',
    execution_id: newId('exe'),
    parent: { execution_id: newId('exe'), call: 1 },
    tenant_sha256: await sha256Hex('acme'),
    session_id: world.sessionId,
    epoch: 1,
    seq: 1,
    prev_sha256: FIRST_PREVIOUS_SHA256,
    host_chain: { seq: 0, sha256: FIRST_PREVIOUS_SHA256 },
    tool: 'stock-price',
    tool_version: '1',
    args_sha256: await sha256Hex('{}'),
    performed_by: 'edge',
    limits: { timeout_ms: 30_000 },
    status: 'succeeded',
    result: { sha256: await sha256Hex('7'), bytes: 1 },
    usage: { wall_ms: 4 },
    started_at: '2026-03-01T10:00:00.500Z',
    finished_at: FINISHED_AT,
    key_id: world.edge.keyId,
    ...changes,
  };
}

/** Also of what is no receipt. */
export function sealByEdge(world: TestWorld, receipt: object): Promise<Envelope> {
  return signEnvelope(EDGE_RECEIPT_PAYLOAD_TYPE, utf8(JSON.stringify(receipt)), world.edge);
}

/** Each at the head of one more receipt of the hosts, as far as there are some. */
export async function makeEdgeChain(
  world: TestWorld,
  length: number,
  hosts: readonly Envelope[],
): Promise<Envelope[]> {
  const chain: Envelope[] = [];
  let prev_sha256 = FIRST_PREVIOUS_SHA256;
  for (let seq = 1; seq <= length; seq += 1) {
    const at = Math.min(seq - 1, hosts.length);
    const head = hosts[at - 1];
    const sha256 = head === undefined ? FIRST_PREVIOUS_SHA256 : await sha256Hex(payloadOf(head));
    const host_chain = { seq: at, sha256 };
    const receipt = await makeEdgeReceipt(world, { seq, prev_sha256, host_chain });
    prev_sha256 = await sha256Hex(JSON.stringify(receipt));
    chain.push(await sealByEdge(world, receipt));
  }
  return chain;
}
