/** Receipts that the edge signs alone: what a verifier takes, and what it refuses. */
import { beforeAll, describe, expect, test } from 'vitest';
import { sha256Hex } from '../../shared/digest.ts';
import { type Envelope, signEnvelope } from '../../shared/dsse.ts';
import { EDGE_RECEIPT_PAYLOAD_TYPE } from '../../shared/edge-receipt.ts';
import { verifyEdgeChain, verifyEdgeReceipt } from '../../shared/edge-receipt-verify.ts';
import { utf8 } from '../../shared/encoding.ts';
import { newId } from '../../shared/ids.ts';
import { verifySessionReceipts } from '../../shared/receipt-verify.ts';
import { makeEdgeChain, makeEdgeReceipt, sealByEdge } from './edge-receipt-fixture.ts';
import {
  makeChain,
  makeSigner,
  makeWorld,
  newTestSessionId,
  payloadOf,
  type TestWorld,
} from './receipt-fixture.ts';

let world: TestWorld;
let hosts: Envelope[];
let chain: Envelope[];

beforeAll(async () => {
  world = await makeWorld();
  hosts = await makeChain(world, 3);
  chain = await makeEdgeChain(world, 4, hosts);
});

function session(changes: { receipts?: Envelope[]; edgeReceipts?: Envelope[]; more?: boolean } = {}) {
  const { sessionId, keys } = world;
  const given = { sessionId, receipts: hosts, edgeReceipts: chain, more: false, ...changes };
  return verifySessionReceipts(given, keys);
}

describe('the chain of the edge', () => {
  test('is taken whole, with that of the hosts', async () => {
    const verified = await session();
    expect(verified).toMatchObject({ ok: true });
    expect(verified.ok && verified.edgeReceipts.map(({ seq }) => seq)).toEqual([1, 2, 3, 4]);
  });

  test.each([
    ['one is missing', 'chain_gap', (all: Envelope[]) => [...all.slice(0, 1), ...all.slice(2)]],
    ['one is there twice', 'chain_fork', (all: Envelope[]) => [...all.slice(0, 2), ...all.slice(1)]],
    ['they are turned around', 'chain_gap', (all: Envelope[]) => all.toReversed()],
  ])('is refused where %s', async (_, code, change) => {
    expect(await session({ edgeReceipts: change(chain) })).toMatchObject({ ok: false, code, chain: 'edge' });
  });

  test('is refused where one does not follow the one before', async () => {
    const second = await makeEdgeReceipt(world, { seq: 2, prev_sha256: await sha256Hex('another') });
    const [first] = chain;
    const edgeReceipts = [...(first === undefined ? [] : [first]), await sealByEdge(world, second)];
    expect(await session({ edgeReceipts })).toMatchObject({ code: 'chain_broken', seq: 2 });
  });

  test('is refused where it names a place in the chain of the hosts that is not there', async () => {
    const wrong = { seq: 2, sha256: await sha256Hex('another') };
    const receipt = await sealByEdge(world, await makeEdgeReceipt(world, { host_chain: wrong }));
    expect(await session({ edgeReceipts: [receipt] })).toMatchObject({ code: 'anchor_mismatch', seq: 1 });
    const beyond = { seq: 9, sha256: await sha256Hex('another') };
    const later = await sealByEdge(world, await makeEdgeReceipt(world, { host_chain: beyond }));
    expect(await session({ edgeReceipts: [later] })).toMatchObject({ code: 'anchor_mismatch' });
    // What is not at hand is not judged.
    expect(await session({ edgeReceipts: [later], more: true })).toMatchObject({ ok: true });
  });

  test('is refused where a call of a program has two receipts', async () => {
    const parent = { execution_id: newId('exe'), call: 1 };
    const one = await sealByEdge(world, await makeEdgeReceipt(world, { parent }));
    const prev_sha256 = await sha256Hex(payloadOf(one));
    const again = await makeEdgeReceipt(world, { parent, seq: 2, prev_sha256 });
    const edgeReceipts = [one, await sealByEdge(world, again)];
    expect(await session({ edgeReceipts })).toMatchObject({ code: 'call_repeated', seq: 2 });
  });

  test('of another session is refused', async () => {
    const where = { sessionId: newTestSessionId(), hostChain: { sha256s: [], isWhole: false } };
    expect(await verifyEdgeChain(chain, world.keys, where)).toMatchObject({ code: 'chain_other_session' });
  });
});

describe('a receipt of the edge', () => {
  test('is taken with the key of the edge, and with no other', async () => {
    const receipt = await makeEdgeReceipt(world);
    expect(await verifyEdgeReceipt(await sealByEdge(world, receipt), world.keys)).toMatchObject({ ok: true });
    const payload = utf8(JSON.stringify(receipt));
    const byHost = await signEnvelope(EDGE_RECEIPT_PAYLOAD_TYPE, payload, world.host);
    expect(await verifyEdgeReceipt(byHost, world.keys)).toMatchObject({ code: 'key_unknown' });
    const stranger = await makeSigner();
    const foreign = await signEnvelope(EDGE_RECEIPT_PAYLOAD_TYPE, payload, stranger);
    expect(await verifyEdgeReceipt(foreign, world.keys)).toMatchObject({ code: 'key_unknown' });
    const naming = await makeEdgeReceipt(world, { key_id: stranger.keyId });
    expect(await verifyEdgeReceipt(await sealByEdge(world, naming), world.keys)).toMatchObject({
      code: 'key_unknown',
    });
  });

  test('with one byte changed, or without a signature, is refused', async () => {
    const envelope = await sealByEdge(world, await makeEdgeReceipt(world));
    const text = new TextDecoder().decode(payloadOf(envelope));
    const changed = text.replace('"status":"succeeded"', '"status":"failed"');
    const other = { ...envelope, payload: btoa(changed) };
    expect(await verifyEdgeReceipt(other, world.keys)).toMatchObject({ code: 'signature_invalid' });
    const bare = { ...envelope, signatures: [] };
    expect(await verifyEdgeReceipt(bare, world.keys)).toMatchObject({ code: 'signature_missing' });
  });

  test.each([
    ['revoked_at', 'key_revoked'],
    ['not_after', 'key_not_valid_then'],
  ])('of a time when %s of its key was past is refused', async (field, code) => {
    const envelope = await sealByEdge(world, await makeEdgeReceipt(world));
    const edge = world.keys.edge.map((key) => ({ ...key, [field]: 1_000 }));
    expect(await verifyEdgeReceipt(envelope, { ...world.keys, edge })).toMatchObject({ code });
  });

  test('is no receipt of a host, nor the other way round', async () => {
    const [host] = hosts;
    expect(await verifyEdgeReceipt(host, world.keys)).toMatchObject({ code: 'payload_type_unknown' });
    expect(await session({ receipts: [...chain] })).toMatchObject({
      code: 'payload_type_unknown',
      chain: 'host',
    });
  });

  test.each<[string, object]>([
    ['an unknown field', { arguments: 'x' }],
    ['no issuer', { issuer: undefined }],
    ['a status that is no end', { status: 'running' }],
  ])('with %s is refused', async (_, change) => {
    const changed = { ...(await makeEdgeReceipt(world)), ...change };
    const envelope = await sealByEdge(world, changed);
    expect(await verifyEdgeReceipt(envelope, world.keys)).toMatchObject({ code: 'payload_malformed' });
  });
});
