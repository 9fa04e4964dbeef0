/** Commands that come while another execution runs or ends, and commands that come too late. */
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { newId } from '../../../shared/ids.ts';
import { HOST_ANSWER_GRACE_MS, MAX_QUEUED_EXECUTIONS } from '../../../shared/limits.ts';
import type { Grant } from '../../fixtures/edge-double/grants.ts';
import { type AttachedSession, type LinkedHost, linkHost } from '../../fixtures/edge-double/host.ts';
import type { ScriptedCall } from '../../fixtures/edge-double/scripted-sandboxes.ts';

let host: LinkedHost;
let session: AttachedSession;
beforeEach(async () => {
  host = await linkHost();
  session = await host.attach();
});
afterEach(() => host.stop());

async function send(timeoutMs = 30_000, issuedAgoS = 0): Promise<Grant> {
  const base = await session.grants.execute('python', { code: '1' });
  const { claims } = base;
  const grant = await session.grants.sign(
    {
      ...claims,
      iat: claims.iat - issuedAgoS,
      exp: claims.exp - issuedAgoS,
      limits: { ...claims.limits, timeout_ms: timeoutMs },
    },
    base.payload,
  );
  session.peer.command(grant.token, grant.payload);
  return grant;
}

const callOf = (grant: Grant): Promise<ScriptedCall> => host.sandboxes.call(grant.claims.exec ?? '');

describe('an execution', () => {
  test('that comes while another runs waits for its end, and interrupts pass it', async () => {
    const first = await send();
    const second = await send();
    const third = await send();
    await callOf(first);
    const interrupt = await session.grants.interrupt(first.claims.exec);
    session.peer.command(interrupt.token, interrupt.payload);
    (await callOf(second)).end();
    (await callOf(third)).end();
    await session.peer.finished(third.claims.exec ?? '');
    const ended = session.peer.ofType('finished').map(({ header }) => header.execution_id);
    expect(ended).toEqual([first, second, third].map(({ claims }) => claims.exec));
    expect(session.peer.ofType('refused')).toHaveLength(0);
  });

  test('that waits is the same when its grant comes again', async () => {
    const first = await send();
    const second = await send();
    session.peer.command(second.token, second.payload);
    (await callOf(first)).end();
    (await callOf(second)).end();
    await session.peer.finished(second.claims.exec ?? '');
    const third = await send();
    (await callOf(third)).end();
    await session.peer.finished(third.claims.exec ?? '');
    expect(host.sandboxes.calls).toHaveLength(3);
  });

  test('that waits starts once when another grant for it comes at any moment', async () => {
    const running = await send();
    await callOf(running);
    const waiting = await send();
    const repeats = await Promise.all(
      Array.from({ length: 40 }, () =>
        session.grants.sign({ ...waiting.claims, jti: newId('jti') }, waiting.payload),
      ),
    );
    for (const [index, repeat] of repeats.entries()) {
      session.peer.command(repeat.token, repeat.payload);
      if (index === 8) (await callOf(running)).end();
      if (index % 4 === 0) await new Promise(setImmediate);
    }
    (await callOf(waiting)).end();
    await session.peer.finished(waiting.claims.exec ?? '');
    const next = await send();
    (await callOf(next)).end();
    await session.peer.finished(next.claims.exec ?? '');
    expect(host.sandboxes.calls).toHaveLength(3);
    expect(session.peer.ofType('refused')).toHaveLength(0);
  });

  test('beyond those that may wait is refused', async () => {
    const first = await send();
    await callOf(first);
    for (let count = 0; count < MAX_QUEUED_EXECUTIONS; count += 1) await send();
    const last = await send();
    const refusal = await session.peer.refusal(last.claims.jti);
    expect(refusal).toMatchObject({ code: 'queue_full', execution_id: last.claims.exec });
    expect(host.sandboxes.calls).toHaveLength(1);
  });

  test('that waits is refused when the sandbox dies', async () => {
    const first = await send();
    const second = await send();
    await callOf(first);
    host.sandboxes.started[0]?.die('crashed');
    const refusal = await session.peer.refusal(second.claims.jti);
    expect(refusal.code).toBe('sandbox_failed');
    expect((await session.peer.finished(first.claims.exec ?? '')).outcome.status).toBe('crashed');
  });

  test('R01 that the edge gave up on while this host slept is not begun', async () => {
    const lateS = HOST_ANSWER_GRACE_MS / 1000 + 5;
    const late = await send(1_000, lateS);
    const refusal = await session.peer.refusal(late.claims.jti);
    expect(refusal).toMatchObject({ code: 'grant_expired', execution_id: late.claims.exec });
    const patient = await send(30_000, lateS);
    (await callOf(patient)).end();
    await session.peer.finished(patient.claims.exec ?? '');
    expect(host.sandboxes.calls).toHaveLength(1);
  });
});
