/** What a host does that does not hear of the edge: by its own clock, before the edge gives its sessions to others. */
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { Lease, type LeaseState } from '../../../host-agent/edge/lease.ts';
import { HOST_DEAD_MS, HOST_LEASE_END_MS, HOST_LEASE_MS } from '../../../shared/limits.ts';
import { type AttachedSession, type LinkedHost, linkHost } from '../../fixtures/edge-double/host.ts';
import type { ScriptedCall } from '../../fixtures/edge-double/scripted-sandboxes.ts';

/** The clock that counts on in suspension may know whole seconds only. */
const BOOT_CLOCK_UNIT_MS = 1_000;

describe('a lease', () => {
  let nowMs: number;
  let bootMs: number;
  let states: LeaseState[];
  let lease: Lease;

  beforeEach(() => {
    vi.useFakeTimers();
    nowMs = 1_000;
    bootMs = 50_000;
    states = [];
    lease = new Lease({ now: () => nowMs, bootClock: () => bootMs, onChange: (state) => states.push(state) });
    lease.renew(nowMs);
  });
  afterEach(() => {
    lease.stop();
    vi.useRealTimers();
  });

  function pass(ms: number): void {
    nowMs += ms;
    bootMs += ms;
    vi.advanceTimersByTime(ms);
  }

  test('lapses after 30 s and ends after 40 s, both before the edge takes the host for dead', () => {
    pass(HOST_LEASE_MS - 1);
    expect(states).toEqual([]);
    pass(1);
    expect(states).toEqual(['lapsed']);
    pass(HOST_LEASE_END_MS - HOST_LEASE_MS);
    expect(states).toEqual(['lapsed', 'ended']);
    expect(HOST_LEASE_END_MS).toBeLessThan(HOST_DEAD_MS);
  });

  test('counts from when the edge was sent what it answered, not from its answer', () => {
    const sentAtMs = nowMs;
    pass(20_000);
    lease.renew(sentAtMs);
    pass(10_000);
    expect(states).toEqual(['lapsed']);
  });

  test('that lapsed is held again with the next answer', () => {
    pass(35_000);
    lease.renew(nowMs - 500);
    expect(states).toEqual(['lapsed', 'held']);
    pass(29_000);
    expect(states).toEqual(['lapsed', 'held']);
  });

  test('F07 knows within a second of the time for which the machine was suspended, though no timer ran', () => {
    bootMs += 60_000;
    pass(1_000);
    expect(states).toEqual(['ended']);
  });

  test('F29 is not touched by the clock on the wall', () => {
    vi.setSystemTime(Date.now() + 600_000);
    pass(10_000);
    expect(states).toEqual([]);
  });
});

describe('a host that does not hear of its edge', () => {
  let host: LinkedHost;
  let session: AttachedSession;
  /** For the lease alone, and by hand: however slow this machine is, no lease ends by itself. */
  let passedMs: number;

  beforeEach(async () => {
    passedMs = 0;
    host = await linkHost({
      timing: { heartbeatMs: 50 },
      leaseClocks: { bootClock: () => performance.now() + passedMs },
    });
    session = await host.attach();
  });
  afterEach(() => host.stop());

  const sandbox = () => host.sandboxes.started[0];
  const becomes = (what: string, look: () => boolean | undefined) =>
    host.sandboxes.changes.until(what, () => (look() === true ? true : undefined));

  async function lapse(): Promise<void> {
    passedMs += HOST_LEASE_MS + BOOT_CLOCK_UNIT_MS;
    await becomes('a sandbox that stands still', () => sandbox()?.isStill);
  }

  async function end(): Promise<void> {
    passedMs += HOST_LEASE_END_MS + BOOT_CLOCK_UNIT_MS;
    await becomes('the end of the sandbox', () => sandbox()?.isDestroyed);
  }

  /** Settles when the host has lost its control link, behind which nothing renews its lease, and gets no other. */
  async function cutControl(): Promise<void> {
    const before = host.edge.refusedControlLinks;
    host.edge.acceptsLinks = false;
    host.edge.controlSocket?.destroy();
    await host.edge.changes.until('a control link that is refused', () =>
      host.edge.refusedControlLinks > before ? true : undefined,
    );
  }

  /** Nothing comes through any more, and no new link either. */
  async function cut(): Promise<void> {
    session.peer.cut();
    await cutControl();
  }

  async function call(): Promise<{ executionId: string; call: ScriptedCall }> {
    const grant = await session.grants.execute('python', { code: 'x' });
    session.peer.command(grant.token, grant.payload);
    const executionId = grant.claims.exec ?? '';
    return { executionId, call: await host.sandboxes.call(executionId) };
  }

  test('has its sandboxes stand still first, and goes on where it hears of it in time', async () => {
    const { executionId, call: running } = await call();
    await cut();
    await lapse();
    host.edge.acceptsLinks = true;
    await becomes('the sandbox goes on', () => sandbox()?.isStill === false);
    running.end({ value: '1' });
    const { outcome } = await session.peer.finished(executionId);
    expect(outcome.status).toBe('succeeded');
    expect(sandbox()?.isDestroyed).toBe(false);
  });

  test('begins nothing meanwhile: what comes on a link that is left waits', async () => {
    await cutControl();
    await lapse();
    const grant = await session.grants.execute('python', { code: 'x' });
    session.peer.command(grant.token, grant.payload);
    const interrupt = await session.grants.execute('python', { code: 'y' });
    session.peer.command(interrupt.token, interrupt.payload);
    expect(host.sandboxes.calls).toEqual([]);
    host.edge.acceptsLinks = true;
    await host.sandboxes.call(grant.claims.exec ?? '');
    expect(sandbox()?.isStill).toBe(false);
  });

  test('F12 ends them at last, says so when it is back, and is as good as new', async () => {
    const { executionId } = await call();
    await cut();
    await lapse();
    await end();
    const before = host.edge.readyControlLinks;
    host.edge.acceptsLinks = true;
    const { outcome } = await session.peer.finished(executionId);
    expect(outcome.status).toBe('crashed');
    expect(await session.peer.frame('sandbox_lost')).toMatchObject({ reason: 'lease_lost' });
    await host.edge.changes.until('a control link', () =>
      host.edge.readyControlLinks > before ? true : undefined,
    );
    await host.attach();
  });

  test('F07 for as long as the machine was suspended ends them soon after it goes on', async () => {
    await cut();
    await end();
    host.edge.acceptsLinks = true;
    expect(await session.peer.frame('sandbox_lost')).toMatchObject({ reason: 'lease_lost' });
  });

  test('tells an edge of the former protocol a reason that it knows', async () => {
    host.edge.protocol = 1;
    session.peer.protocol = 1;
    session.peer.cut();
    await session.peer.changes.until('a link by the former protocol', () =>
      session.peer.hellos > 2 ? session.peer.socket : undefined,
    );
    // What it carries out came on that link: its welcome was read.
    await call();
    await cut();
    await end();
    host.edge.acceptsLinks = true;
    expect(await session.peer.frame('sandbox_lost')).toMatchObject({ reason: 'crashed' });
  });
});
