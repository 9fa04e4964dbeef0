import { beforeAll, describe, expect, test } from 'vitest';
import { sha256Hex } from '../../shared/digest.ts';
import { type Envelope, preAuthenticationEncoding } from '../../shared/dsse.ts';
import { fromBase64, toBase64, toBase64Url, utf8 } from '../../shared/encoding.ts';
import { RECEIPT_PAYLOAD_TYPE } from '../../shared/receipt.ts';
import { verifyChain, verifyReceipt } from '../../shared/receipt-verify.ts';
import type { TrustedKeys } from '../../shared/verification.ts';
import {
  makeChain,
  makeReceipt,
  makeSealed,
  makeWorld,
  payloadOf,
  seal,
  type TestWorld,
} from './receipt-fixture.ts';

let world: TestWorld;
let sealed: Envelope;

beforeAll(async () => {
  world = await makeWorld();
  sealed = await makeSealed(world);
});

async function codeOf(envelope: unknown, keys: TrustedKeys = world.keys): Promise<string> {
  const verified = await verifyReceipt(envelope, keys);
  return verified.ok ? 'valid' : verified.code;
}

function flip(base64: string, index: number): string {
  const bytes = fromBase64(base64);
  if (bytes === undefined) throw new Error('not base64');
  bytes[index] = (bytes[index] ?? 0) ^ 1;
  return toBase64(bytes);
}

function withSignature(position: number, change: (sig: string) => string): Envelope {
  return {
    ...sealed,
    signatures: sealed.signatures.map((signature, index) =>
      index === position ? { ...signature, sig: change(signature.sig) } : signature,
    ),
  };
}

function withPayload(change: (text: string) => string): Envelope {
  const text = new TextDecoder().decode(payloadOf(sealed));
  return { ...sealed, payload: toBase64(utf8(change(text))) };
}

describe('a receipt', () => {
  test('that nobody touched verifies', async () => {
    expect(await codeOf(sealed)).toBe('valid');
  });

  test('T01 with any one byte of its payload changed is refused', async () => {
    const length = payloadOf(sealed).length;
    const accepted: number[] = [];
    for (let index = 0; index < length; index += 1) {
      if ((await codeOf({ ...sealed, payload: flip(sealed.payload, index) })) === 'valid')
        accepted.push(index);
    }
    expect(accepted).toEqual([]);
  });

  test('T02 with any one byte of either signature changed is refused as signature_invalid', async () => {
    const codes = new Set<string>();
    for (const position of [0, 1]) {
      for (let index = 0; index < 64; index += 1) {
        codes.add(await codeOf(withSignature(position, (sig) => flip(sig, index))));
      }
    }
    expect([...codes]).toEqual(['signature_invalid']);
  });

  test('T03 with another payload type is refused', async () => {
    expect(await codeOf({ ...sealed, payloadType: 'application/vnd.sandgate.receipt.v0+json' })).toBe(
      'payload_type_unknown',
    );
  });

  test('T04 with a changed key id is refused', async () => {
    const [first, ...rest] = sealed.signatures;
    const changed = {
      ...sealed,
      signatures: [{ keyid: `${first?.keyid.slice(1)}x`, sig: first?.sig ?? '' }, ...rest],
    };
    expect(await codeOf(changed)).toBe('key_unknown');
  });

  test('T05 whose previous digest was changed is refused', async () => {
    expect(await codeOf(withPayload((text) => text.replace('"prev_sha256":"0', '"prev_sha256":"1')))).toBe(
      'signature_invalid',
    );
  });

  test('T06 whose stdout digest was changed is refused', async () => {
    const other = await sha256Hex('ho\n');
    const digest = await sha256Hex('hi\n');
    expect(await codeOf(withPayload((text) => text.replace(digest, other)))).toBe('signature_invalid');
  });

  test('T07 with the payload of another valid receipt is refused', async () => {
    const other = await makeSealed(world);
    expect(await codeOf({ ...sealed, payload: other.payload })).toBe('signature_invalid');
  });

  test('T08 T09 T10 of another execution, session or tenant is refused where it is expected elsewhere', async () => {
    const receipt = await makeReceipt(world);
    const envelope = await seal(receipt, world.host, world.edge);
    const other = await makeReceipt(await makeWorld());
    const rows = [
      [{ executionId: receipt.execution_id, sessionId: receipt.session_id, tenant: 'acme' }, 'valid'],
      [{ executionId: other.execution_id }, 'execution_mismatch'],
      [{ sessionId: other.session_id }, 'session_mismatch'],
      [{ tenant: 'other' }, 'tenant_mismatch'],
    ] as const;
    for (const [expected, code] of rows) {
      const verified = await verifyReceipt(envelope, world.keys, expected);
      expect(verified.ok ? 'valid' : verified.code).toBe(code);
    }
  });

  test('T11 without signatures is refused', async () => {
    expect(await codeOf({ ...sealed, signatures: [] })).toBe('signature_missing');
  });

  test('T12 with only the signature of the edge is refused', async () => {
    expect(await codeOf({ ...sealed, signatures: sealed.signatures.slice(1) })).toBe(
      'host_signature_missing',
    );
  });

  test('T13 with only the signature of the host is refused', async () => {
    expect(await codeOf({ ...sealed, signatures: sealed.signatures.slice(0, 1) })).toBe(
      'edge_signature_missing',
    );
  });

  test('T14 signed by the key of another host is refused', async () => {
    const forged = await seal(await makeReceipt(world), world.otherHost, world.edge);
    expect(await codeOf(forged)).toBe('key_of_other_host');
  });

  test.each([
    ['T15', { not_after: 1_000_000_000 }, 'key_not_valid_then'],
    ['T15', { not_before: 4_000_000_000 }, 'key_not_valid_then'],
    ['T16 A56', { revoked_at: 1_000_000_000 }, 'key_revoked'],
    ['T16 A56 twin: signed before the revocation', { revoked_at: 4_000_000_000 }, 'valid'],
  ])('%s under a key with %o is judged %s', async (_id, dates, code) => {
    const keys = { ...world.keys, hosts: world.keys.hosts.map((key) => ({ ...key, ...dates })) };
    expect(await codeOf(sealed, keys)).toBe(code);
  });

  test('T17 with S + L in place of S is refused', async () => {
    const order = 2n ** 252n + 27742317777372353535851937790883648493n;
    const malleated = withSignature(0, (sig) => {
      const bytes = fromBase64(sig) ?? new Uint8Array(64);
      let scalar = order;
      for (let index = 0; index < 32; index += 1)
        scalar += BigInt(bytes[32 + index] ?? 0) << BigInt(8 * index);
      for (let index = 0; index < 32; index += 1)
        bytes[32 + index] = Number((scalar >> BigInt(8 * index)) & 0xffn);
      return toBase64(bytes);
    });
    expect(await codeOf(malleated)).toBe('signature_invalid');
  });

  test('T18 under a small-order key is refused although the equation holds', async () => {
    // With the identity as public key, R = identity and S = 0 satisfy the verification equation for every message.
    const identity = new Uint8Array(32);
    identity[0] = 1;
    const weak = {
      ...world.host.dated,
      jwk: { kty: 'OKP', crv: 'Ed25519', x: toBase64Url(identity) } as const,
    };
    const keys = { ...world.keys, hosts: [{ ...weak, host_id: world.hostId }] };
    const universal = new Uint8Array(64);
    universal[0] = 1;
    expect(
      await codeOf(
        withSignature(0, () => toBase64(universal)),
        keys,
      ),
    ).toBe('signature_invalid');
  });

  test('T19 with non-canonical base64 is refused', async () => {
    expect(await codeOf({ ...sealed, payload: `${sealed.payload}\n` })).toBe('payload_encoding');
    expect(await codeOf({ ...sealed, payload: toBase64Url(payloadOf(sealed)) })).not.toBe('valid');
    expect(await codeOf(withSignature(1, (sig) => sig.replace(/=+$/, '')))).toBe('signature_invalid');
  });

  test('T20 whose payload has a key twice is refused although it is signed', async () => {
    const text = JSON.stringify(await makeReceipt(world)).replace('"status":', '"status":"failed","status":');
    expect(await codeOf(await seal(text, world.host, world.edge))).toBe('payload_duplicate_key');
  });

  test('T21 with a field of its own in the envelope is refused', async () => {
    expect(await codeOf({ ...sealed, status: 'succeeded' })).toBe('envelope_malformed');
    const [first, second] = sealed.signatures;
    expect(await codeOf({ ...sealed, signatures: [{ ...first, status: 'succeeded' }, second] })).toBe(
      'envelope_malformed',
    );
  });

  test('T22 of truncated output is refused for output that is shown as whole', async () => {
    const stdout = { sha256: await sha256Hex('a long text'), bytes: 11, truncated: true };
    const envelope = await makeSealed(world, { stdout });
    const shown = async (presentedAsWhole: boolean) =>
      verifyReceipt(envelope, world.keys, { stdout: { bytes: utf8('a l'), presentedAsWhole } });
    expect(await shown(true)).toMatchObject({ ok: false, code: 'truncation_hidden' });
    expect(await shown(false)).toMatchObject({ ok: true });
  });

  test('T22 whose output was exchanged is refused', async () => {
    const held = async (text: string) =>
      verifyReceipt(sealed, world.keys, { stdout: { bytes: utf8(text), presentedAsWhole: true } });
    expect(await held('hi\n')).toMatchObject({ ok: true });
    expect(await held('ho\n')).toMatchObject({ ok: false, code: 'output_mismatch' });
  });

  test('T23 T24 of another attempt or another grant is refused', async () => {
    const attempt = async (grant: string) => verifyReceipt(sealed, world.keys, { grant });
    expect(await attempt('a grant')).toMatchObject({ ok: true });
    expect(await attempt('another grant')).toMatchObject({ ok: false, code: 'grant_mismatch' });
  });

  test('of other arguments is refused', async () => {
    const argsSha256 = await sha256Hex('{"code":"2"}');
    expect(await verifyReceipt(sealed, world.keys, { argsSha256 })).toMatchObject({ code: 'args_mismatch' });
  });
});

describe('the signed message', () => {
  test('is the pre-authentication encoding of DSSE', () => {
    const message = preAuthenticationEncoding('http://example.com/HelloWorld', utf8('hello world'));
    expect(new TextDecoder().decode(message)).toBe('DSSEv1 29 http://example.com/HelloWorld 11 hello world');
    expect(RECEIPT_PAYLOAD_TYPE).toBe('application/vnd.sandgate.receipt.v1+json');
  });
});

describe('A55: the chain of a session', () => {
  test('verifies when it is whole, and when it is empty', async () => {
    expect(await verifyChain(await makeChain(world, 4), world.keys, world.sessionId)).toMatchObject({
      ok: true,
    });
    expect(await verifyChain([], world.keys, world.sessionId)).toMatchObject({ ok: true });
  });

  test('with a receipt left out names the gap', async () => {
    const [first, , third] = await makeChain(world, 3);
    expect(await verifyChain([first, third], world.keys, world.sessionId)).toMatchObject({
      code: 'chain_gap',
      seq: 2,
    });
  });

  test('that does not begin with the first names the gap', async () => {
    const [, second] = await makeChain(world, 2);
    expect(await verifyChain([second], world.keys, world.sessionId)).toMatchObject({
      code: 'chain_gap',
      seq: 1,
    });
  });

  test('with two receipts exchanged names the place', async () => {
    const [first, second, third] = await makeChain(world, 3);
    expect(await verifyChain([first, third, second], world.keys, world.sessionId)).toMatchObject({ seq: 2 });
  });

  test('with two receipts of one number names the fork', async () => {
    const [first] = await makeChain(world, 1);
    const twin = await makeSealed(world);
    expect(await verifyChain([first, twin], world.keys, world.sessionId)).toMatchObject({
      code: 'chain_fork',
      seq: 2,
    });
  });

  test('whose link does not hash to the one before is broken', async () => {
    const [first] = await makeChain(world, 1);
    const stray = await makeSealed(world, { seq: 2, prev_sha256: 'f'.repeat(64) });
    expect(await verifyChain([first, stray], world.keys, world.sessionId)).toMatchObject({
      code: 'chain_broken',
      seq: 2,
    });
  });

  test('with a receipt of another session is refused', async () => {
    const foreign = await makeSealed(world, { session_id: (await makeWorld()).sessionId });
    expect(await verifyChain([foreign], world.keys, world.sessionId)).toMatchObject({
      code: 'chain_other_session',
    });
  });
});
