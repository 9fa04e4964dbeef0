/** Chooses the host for a new session. Pure: rows in, choice out. */
import { failure, type Outcome, success } from '../../../shared/errors.ts';
import type { Placement } from './port.ts';
import type { HostRow } from './store.ts';

/** The least filled host that is connected, sound, has the image and has room; equals are told apart by `random`. */
export function choosePlacement(
  hosts: readonly HostRow[],
  { image, except = [] }: { image: string; except?: readonly string[] },
  random: () => number,
): Outcome<Placement> {
  const known = hosts.flatMap((host) => {
    const digest = digestOf(host, image);
    return digest === undefined ? [] : [{ host, digest }];
  });
  if (known.length === 0) {
    return hosts.length === 0
      ? failure('no_host_available', 'the pool has no host')
      : failure('image_not_found', `no host has the image ${image}`);
  }
  const open = known.filter(({ host }) => isOpen(host) && !except.includes(host.host_id));
  const best = open
    .map((candidate) => ({ ...candidate, fill: fill(candidate.host), tie: random() }))
    .sort((left, right) => left.fill - right.fill || left.tie - right.tie)[0];
  if (best === undefined) {
    return failure('no_host_available', 'no connected host with this image has room', { retry_after_s: 2 });
  }
  return success({ hostId: best.host.host_id, imageDigest: best.digest });
}

function digestOf(host: HostRow, image: string): string | undefined {
  return host.images.find(({ name, digest }) => name === image || digest === image)?.digest;
}

function isOpen(host: HostRow): boolean {
  return host.state === 'connected' && !host.degraded && host.faults.length === 0 && room(host) > 0;
}

function room(host: HostRow): number {
  return host.capacity - host.sandboxes - host.placed;
}

function fill(host: HostRow): number {
  return (host.sandboxes + host.placed) / Math.max(1, host.capacity);
}
