/** The straight road over real WebSockets: enrol, attach, execute, end with a receipt. */
import { hash } from 'node:crypto';
import { stat } from 'node:fs/promises';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { envelopePayload, preAuthenticationEncoding, verifySignature } from '../../../shared/dsse.ts';
import { importPublicKey } from '../../../shared/ed25519.ts';
import { readReceipt } from '../../../shared/receipt-verify.ts';
import { type LinkedHost, linkHost } from '../../fixtures/edge-double/host.ts';

let host: LinkedHost;
beforeEach(async () => {
  host = await linkHost();
});
afterEach(() => host.stop());

describe('a host that enrolled', () => {
  test('says what it has, and keeps its key for itself', async () => {
    const hello = await host.edge.controlFrame('hello');
    expect(hello.host_id).toBe(host.agent.hostId);
    expect(hello.images).toEqual(host.sandboxes.facts.images);
    const { mode } = await stat(join(host.hostDir, 'identity.json'));
    expect(mode & 0o777).toBe(0o600);
  });

  test('runs a call and delivers output, value and a receipt that verifies', async () => {
    const { grants, peer, tenant } = await host.attach();
    const grant = await grants.execute('python', { code: '6 * 7' });
    peer.command(grant.token, grant.payload);
    const executionId = grant.claims.exec ?? '';
    const call = await host.sandboxes.call(executionId);
    expect(call.call.arguments).toEqual({ code: '6 * 7' });
    await call.write('stdout', 'hello ');
    await call.write('stderr', 'warning');
    await call.write('stdout', 'world');
    call.end({ value: '42', results: [{ mime: 'image/png', data: 'AAAA' }] });

    const { outcome, receipt } = await peer.finished(executionId);
    expect(outcome.status).toBe('succeeded');
    expect(outcome.stdout_bytes).toBe(11);
    expect(peer.output(executionId, 'stdout').toString()).toBe('hello world');
    expect(peer.output(executionId, 'stderr').toString()).toBe('warning');
    expect(peer.part(executionId, 'value')).toBe('42');
    expect(peer.part(executionId, 'result', 0)).toBe('AAAA');

    const read = readReceipt(receipt);
    if (!read.ok) throw new Error(read.detail);
    const { receipt: signed, envelope } = read.value;
    expect(signed).toMatchObject({
      execution_id: executionId,
      grant_jti: grant.claims.jti,
      grant_sha256: hash('sha256', grant.token),
      tenant_sha256: hash('sha256', tenant),
      seq: 1,
      prev_sha256: '0'.repeat(64),
      status: 'succeeded',
      stdout: { sha256: hash('sha256', 'hello world'), bytes: 11, truncated: false },
      artifacts: [
        { path: 'value', sha256: hash('sha256', '42'), bytes: 2 },
        { path: 'results/0', sha256: hash('sha256', 'AAAA'), bytes: 4 },
      ],
    });
    expect(signed).not.toHaveProperty('clock_ahead_ms');
    const jwk = host.edge.hosts.get(host.agent.hostId);
    const key = jwk && (await importPublicKey(jwk));
    const message = preAuthenticationEncoding(
      envelope.payloadType,
      envelopePayload(envelope) ?? new Uint8Array(),
    );
    expect(key && (await verifySignature(envelope.signatures[0]?.sig ?? '', message, key))).toBe(true);
  });

  test('signs a large part of an answer as one, and of a call without an answer that there is none', async () => {
    const { grants, peer } = await host.attach();
    const large = 'é'.repeat(400_000);
    const ends = [{ results: [{ mime: 'text/html', data: large }] }, {}];
    const found: unknown[] = [];
    for (const end of ends) {
      const grant = await grants.execute('python', { code: '1' });
      peer.command(grant.token, grant.payload);
      (await host.sandboxes.call(grant.claims.exec ?? '')).end(end);
      const read = readReceipt((await peer.finished(grant.claims.exec ?? '')).receipt);
      found.push(read.ok ? read.value.receipt.artifacts : read.detail);
    }
    expect(found).toEqual([[{ path: 'results/0', sha256: hash('sha256', large), bytes: 800_000 }], []]);
  });

  test.each([
    { relay: 'bounded', code: 'a call that is over at once', told: [] },
    { relay: 'full', code: 'a call that a client follows', told: ['started'] },
  ] as const)('tells a start apart from the end where it matters: $code', async ({ relay, told }) => {
    const { grants, peer } = await host.attach();
    const grant = await grants.execute('python', { code: '1' }, { relay });
    peer.command(grant.token, grant.payload);
    const executionId = grant.claims.exec ?? '';
    (await host.sandboxes.call(executionId)).end();
    const { outcome } = await peer.finished(executionId);
    expect(Date.parse(outcome.started_at ?? '')).not.toBeNaN();
    const types = peer.frames.map(({ header }) => header.type);
    expect(types.filter((type) => type === 'started')).toEqual(told);
  });

  test('tells the start of a call that goes on', async () => {
    const { grants, peer } = await host.attach();
    const grant = await grants.execute('python', { code: '1' }, { relay: 'bounded' });
    peer.command(grant.token, grant.payload);
    const executionId = grant.claims.exec ?? '';
    const call = await host.sandboxes.call(executionId);
    const started = await peer.frame('started');
    expect(started).toMatchObject({ execution_id: executionId, grant_jti: grant.claims.jti });
    call.end();
    const { outcome } = await peer.finished(executionId);
    expect(outcome.started_at).toBe(started.started_at);
  });

  test('chains the receipts of a session', async () => {
    const { grants, peer } = await host.attach();
    const payloads: string[] = [];
    for (const code of ['1', '2', '3']) {
      const grant = await grants.execute('python', { code });
      peer.command(grant.token, grant.payload);
      (await host.sandboxes.call(grant.claims.exec ?? '')).end();
      const { receipt } = await peer.finished(grant.claims.exec ?? '');
      payloads.push(Buffer.from(receipt.payload, 'base64').toString());
    }
    const receipts = payloads.map((payload) => JSON.parse(payload));
    expect(receipts.map((receipt) => receipt.seq)).toEqual([1, 2, 3]);
    expect(receipts[1].prev_sha256).toBe(hash('sha256', payloads[0] ?? ''));
    expect(receipts[2].prev_sha256).toBe(hash('sha256', payloads[1] ?? ''));
  });

  test('passes stdin and an interrupt on to what runs', async () => {
    const { grants, peer } = await host.attach();
    const grant = await grants.execute('shell', { command: 'cat' });
    peer.command(grant.token, grant.payload);
    const executionId = grant.claims.exec ?? '';
    const call = await host.sandboxes.call(executionId);
    for (const text of ['line\n', '']) {
      const stdin = await grants.stdin(executionId, new TextEncoder().encode(text));
      peer.command(stdin.token, stdin.payload);
    }
    expect(await peer.frame('stdin_taken')).toMatchObject({ execution_id: executionId, bytes: 5 });
    const interrupt = await grants.interrupt(executionId);
    peer.command(interrupt.token, interrupt.payload);
    const { outcome } = await peer.finished(executionId);
    expect(outcome.status).toBe('interrupted');
    expect(call.stdin).toEqual([
      { text: 'line\n', eof: false },
      { text: '', eof: true },
    ]);
  });

  test('ends the sandbox on a destroy grant and says so', async () => {
    const { grants, peer } = await host.attach();
    const grant = await grants.destroy();
    peer.command(grant.token, grant.payload);
    const lost = await peer.frame('sandbox_lost');
    expect(lost.reason).toBe('destroyed');
    await peer.changes.until('the link closed', () => peer.closeCodes[0]);
    expect(peer.closeCodes).toEqual([1000]);
    expect(host.sandboxes.started[0]?.isDestroyed).toBe(true);
    const load = await host.edge.controlFrame('load', ({ sandboxes }) => sandboxes === 1);
    expect(load.degraded).toBe(false);
  });
});
