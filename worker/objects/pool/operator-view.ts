/** Hosts as an operator sees them, one by one and together. Pure. */
import type { PoolSummary } from '../../../shared/host-api.ts';
import { roomOf } from './placement.ts';
import type { OperatorHost } from './port.ts';
import type { HostRow } from './store.ts';

export function operatorView(host: HostRow): OperatorHost {
  return {
    host_id: host.host_id,
    pool: host.pool,
    state: host.state,
    sandboxes: host.sandboxes,
    capacity: { sandboxes: host.capacity },
    images: host.images,
    faults: [...(host.degraded ? (['degraded'] as const) : []), ...host.faults],
    last_seen_at: host.last_seen_at === null ? null : new Date(host.last_seen_at).toISOString(),
  };
}

/** What a dead host said last is no room, and no sandbox. */
export function summaryOf(
  hosts: readonly HostRow[],
): Pick<PoolSummary, 'hosts' | 'sandboxes' | 'capacity' | 'room'> {
  const counts = { connected: 0, suspect: 0, dead: 0 };
  const sums = { sandboxes: 0, capacity: 0, room: 0 };
  for (const host of hosts) {
    counts[host.state] += 1;
    if (host.state === 'dead') continue;
    sums.sandboxes += host.sandboxes;
    sums.capacity += host.capacity;
    sums.room += roomOf(host);
  }
  const { sandboxes, capacity, room } = sums;
  return { hosts: counts, sandboxes, capacity: { sandboxes: capacity }, room };
}
