/** What a host does when the other end of a link does not keep to the protocol, or says nothing at all. */
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { encodeFrame } from '../../../shared/frames.ts';
import { MAX_ARGUMENTS_BYTES, MAX_FRAME_BYTES, MAX_FRAME_PAYLOAD_BYTES } from '../../../shared/limits.ts';
import { type AttachedSession, type LinkedHost, linkHost } from '../../fixtures/edge-double/host.ts';
import type { ServerSocket } from '../../fixtures/edge-double/websocket-server.ts';

const PROTOCOL_VIOLATION = 4008;

describe('a frame that breaks the protocol of a session link', () => {
  let host: LinkedHost;
  let session: AttachedSession;
  beforeEach(async () => {
    host = await linkHost();
    session = await host.attach();
  });
  afterEach(() => host.stop());

  async function expectClosed(send: (socket: ServerSocket) => void, code: number | null): Promise<void> {
    const socket = await session.peer.linked();
    send(socket);
    await session.peer.changes.until('a closed link', () =>
      session.peer.closeCodes.length > 0 ? true : undefined,
    );
    expect(session.peer.closeCodes[0]).toBe(code);
    // The sandbox lives on, and the link comes back.
    const grant = await session.grants.execute('python', { code: '1' });
    await session.peer.linked();
    await session.peer.changes.until('a second hello', () => (session.peer.hellos > 1 ? true : undefined));
    session.peer.command(grant.token, grant.payload);
    (await host.sandboxes.call(grant.claims.exec ?? '')).end();
    await session.peer.finished(grant.claims.exec ?? '');
  }

  const WRONG: [string, Uint8Array][] = [
    ['is empty', new Uint8Array(0)],
    ['has a header longer than itself', new Uint8Array([0xff, 0xff, 0x7b, 0x7d])],
    ['has a header that is not JSON', new Uint8Array([0, 2, 0x7b, 0x7b])],
    ['has a header that is not UTF-8', new Uint8Array([0, 2, 0xc3, 0x28])],
    ['is of an unknown type', encodeFrame({ type: 'surprise' })],
    ['has a field too many', encodeFrame({ type: 'fenced', epoch: 1, why: 'x' })],
    ['is a second challenge', encodeFrame({ type: 'challenge', nonce: 'n'.repeat(22) })],
    ['is a second welcome', encodeFrame({ type: 'welcome', epoch: 1, acked_seq: 0, window_bytes: 1 })],
    ['acknowledges what was not sent', encodeFrame({ type: 'ack', epoch: 1, seq: 99 })],
    ['is a part out of order', encodeFrame({ type: 'command', grant: 'g', part: 1, parts: 2 })],
  ];

  test.each(WRONG)('that %s closes the link', (_, frame) =>
    expectClosed((socket) => socket.sendBinary(frame), PROTOCOL_VIOLATION),
  );

  test('that is text other than pong closes the link', () =>
    expectClosed((socket) => socket.sendText('hello'), PROTOCOL_VIOLATION));

  test('that is larger than any frame may be closes the link without being taken in', async () => {
    const socket = await session.peer.linked();
    socket.sendBinary(new Uint8Array(MAX_FRAME_BYTES + 1));
    await session.peer.changes.until('a closed link', () =>
      session.peer.closeCodes.length > 0 ? true : undefined,
    );
  });

  test('that makes a command larger than any may be closes the link', () =>
    expectClosed((socket) => {
      const parts = Math.ceil(MAX_ARGUMENTS_BYTES / MAX_FRAME_PAYLOAD_BYTES) + 1;
      for (let part = 0; part < parts; part += 1) {
        const header = { type: 'command', grant: 'g', part, parts };
        socket.sendBinary(encodeFrame(header, new Uint8Array(MAX_FRAME_PAYLOAD_BYTES)));
      }
    }, PROTOCOL_VIOLATION));

  test('of an acknowledgement of another epoch changes nothing', async () => {
    session.peer.send({ type: 'ack', epoch: 7, seq: 99 });
    const grant = await session.grants.execute('python', { code: '1' });
    session.peer.command(grant.token, grant.payload);
    (await host.sandboxes.call(grant.claims.exec ?? '')).end();
    await session.peer.finished(grant.claims.exec ?? '');
    expect(session.peer.closeCodes).toEqual([]);
  });
});

describe('a link on which nothing comes back', () => {
  const timing = { heartbeatMs: 20, pongTimeoutMs: 60 };

  test('F13 is given up when no pong comes, and made anew', async () => {
    const host = await linkHost({ timing });
    host.edge.answersPing = false;
    await host.edge.changes.until('a closed control link', () =>
      host.edge.controlCloseCodes.includes(4001) ? true : undefined,
    );
    const before = host.edge.readyControlLinks;
    host.edge.answersPing = true;
    await host.edge.changes.until('a new control link', () =>
      host.edge.readyControlLinks > before ? true : undefined,
    );
    await host.stop();
  });

  test('F12 for too long takes its sandbox with it', async () => {
    const host = await linkHost({ abandonAfterMs: 100 });
    const { peer } = await host.attach();
    host.edge.acceptsLinks = false;
    peer.cut();
    await host.sandboxes.changes.until('the end of the sandbox', () =>
      host.sandboxes.started[0]?.isDestroyed ? true : undefined,
    );
    await host.stop();
  });

  test('reports its load with every heartbeat', async () => {
    const host = await linkHost({ timing });
    await host.edge.changes.until('five reports', () =>
      host.edge.control.filter(({ type }) => type === 'load').length >= 5 ? true : undefined,
    );
    await host.stop();
  });
});

test('a large host tells what its load has come to once a second, however much it changes', async () => {
  const host = await linkHost({ capacity: 64 });
  const loads = () => host.edge.control.flatMap((frame) => (frame.type === 'load' ? [frame.sandboxes] : []));
  const before = loads().length;
  await Promise.all(Array.from({ length: 20 }, () => host.attach()));
  await host.edge.changes.until('the load that it came to', () => (loads().at(-1) === 20 ? true : undefined));
  expect(loads().length - before).toBeLessThan(20);
  await host.stop();
});

test('a host that has no room left says so, but has it for a session that moves on to a new epoch', async () => {
  const host = await linkHost({ capacity: 1 });
  const { grants, tenant, sessionId: heldId } = await host.attach();
  const { sessionId } = await host.requestAttach();
  const refusal = await host.edge.controlFrame('refused', ({ session_id }) => session_id === sessionId);
  expect(refusal.code).toBe('host_full');
  const next = await grants.attach({}, { epoch: 2 });
  host.edge.commandControl(next.token, next.payload);
  await host.edge.session({ sessionId: heldId, tenant, epoch: 2 }).frame('ready');
  expect(host.sandboxes.started.map(({ isDestroyed }) => isDestroyed)).toEqual([true, false]);
  await host.stop();
});

test('a host tells of images that came and went, at once and once', async () => {
  const host = await linkHost();
  const images = [{ name: 'imported', digest: `sha256:${'d'.repeat(64)}` }];
  host.sandboxes.setImages(images);
  expect(await host.edge.controlFrame('images', () => true)).toMatchObject({ images });
  host.sandboxes.setImages(images);
  host.sandboxes.setImages([]);
  await host.edge.controlFrame('images', (frame) => frame.images.length === 0);
  expect(host.edge.control.filter(({ type }) => type === 'images')).toHaveLength(2);
  await host.stop();
});
