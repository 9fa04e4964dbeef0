/** The link of a session is dialled while its sandbox is being made. */
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { failure } from '../../../shared/errors.ts';
import { type AttachedSession, type LinkedHost, linkHost } from '../../fixtures/edge-double/host.ts';

let host: LinkedHost;
let session: AttachedSession;
let letStart: () => void;
beforeEach(async () => {
  host = await linkHost();
  const start = Promise.withResolvers<void>();
  host.sandboxes.startsAfter = start.promise;
  letStart = start.resolve;
  session = await host.requestAttach();
  await session.peer.changes.until('a hello', () => (session.peer.hellos === 1 ? true : undefined));
});
afterEach(() => host.stop());

describe('a session whose sandbox is being made', () => {
  test('is linked meanwhile, and says that it is ready when it is', async () => {
    expect(session.peer.frames).toEqual([]);
    letStart();
    const ready = await session.peer.frame('ready');
    expect(ready).toMatchObject({ seq: 1, sandbox_id: host.sandboxes.started[0]?.id });
    expect(session.peer.hellos).toBe(1);
  });

  test('carries out what it was told before, once it has its sandbox', async () => {
    const grant = await session.grants.execute('python', { code: 'x' });
    session.peer.command(grant.token, grant.payload);
    const executionId = grant.claims.exec ?? '';
    letStart();
    const call = await host.sandboxes.call(executionId);
    expect(session.peer.ofType('ready')).toHaveLength(1);
    call.end();
    expect((await session.peer.finished(executionId)).outcome.status).toBe('succeeded');
  });

  test('hangs up where there will be none', async () => {
    host.sandboxes.startFailure = failure('sandbox_failed', 'no sandbox today');
    letStart();
    await session.peer.changes.until('the end of the link', () => session.peer.closeCodes[0]);
    expect(session.peer.closeCodes).toEqual([1000]);
    expect(session.peer.frames).toEqual([]);
  });

  test('ends its sandbox where it was fenced before that was there', async () => {
    session.peer.send({ type: 'fenced', epoch: 2 });
    const { socket } = session.peer;
    letStart();
    await host.sandboxes.changes.until('the end of the sandbox', () =>
      host.sandboxes.started[0]?.isDestroyed === true ? true : undefined,
    );
    expect(socket).toBeDefined();
  });
});
