/** Chooses the host for a new session. Pure: rows in, choice out. */
import { failure, type Outcome, success } from '../../../shared/errors.ts';
import type { Placement, PlacementWish, RestoreWish } from './port.ts';
import type { HostRow } from './store.ts';

/** Up to so many hosts are all looked at; of more, a few are drawn. */
const ALL_LOOKED_AT = 16;
/** Enough to find one with room, and few enough that many who choose at once do not choose the same. */
const SAMPLE_HOSTS = 3;
/** A host that is near is taken though others are emptier, but not its last places. */
const NEAR_MAX_FILL = 0.9;
const FULL_RETRY_AFTER_S = 2;
/** Nobody is there who could take a session: that takes an operator, or a host that links again. */
const AWAY_RETRY_AFTER_S = 5;

/** The least filled of a few hosts that are connected, sound, have the image and room; equals are told apart by `random`. */
export function choosePlacement(
  hosts: readonly HostRow[],
  { image, except = [], near = [], requires, like }: PlacementWish,
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
  const fitting = known.filter(({ host }) => fits(host, requires ?? traitsOf(hosts, like)));
  if (fitting.length === 0) {
    return failure('snapshot_mismatch', 'no host has what the snapshot was made with');
  }
  const open = fitting.filter(({ host }) => isOpen(host) && !except.includes(host.host_id));
  const close = open.filter(({ host }) => near.includes(host.host_id) && fill(host) < NEAR_MAX_FILL);
  const best = leastFilled(close.length > 0 ? close : sample(open, random), random);
  if (best === undefined) {
    const isSoundOne = fitting.some(({ host }) => isSound(host));
    return failure('no_host_available', 'no connected host with this image has room', {
      retry_after_s: isSoundOne ? FULL_RETRY_AFTER_S : AWAY_RETRY_AFTER_S,
    });
  }
  return success({ hostId: best.host.host_id, imageDigest: best.digest });
}

/**
 * Whether a snapshot is worth waiting with: a host that lives has what it was made with, if no room now; or none lives, so that
 * nothing else could be done either.
 */
export function mayRestore(hosts: readonly HostRow[], wish: RestoreWish): boolean {
  return livingWith(hosts, wish).length === 0 || isRestorable(hosts, wish);
}

/** Whether a host that lives can go on from the snapshot, if it has no room now. */
export function isRestorable(hosts: readonly HostRow[], wish: RestoreWish): boolean {
  return livingWith(hosts, wish).some((host) => fits(host, wish.requires));
}

function livingWith(hosts: readonly HostRow[], { image, except = [] }: RestoreWish): HostRow[] {
  const living = hosts.filter(({ state, host_id }) => state !== 'dead' && !except.includes(host_id));
  return living.filter((host) => digestOf(host, image) !== undefined);
}

type Traits = NonNullable<HostRow['traits']>;

/** Undefined: anything will do. Null: nothing does, for it is not known what the host has. */
function traitsOf(hosts: readonly HostRow[], like: string | undefined): Traits | null | undefined {
  if (like === undefined) return undefined;
  return hosts.find(({ host_id }) => host_id === like)?.traits ?? null;
}

function fits({ traits }: HostRow, wanted: Traits | null | undefined): boolean {
  if (wanted === undefined) return true;
  if (wanted === null || traits === null) return false;
  return (
    traits.runsc_version === wanted.runsc_version &&
    traits.runsc_platform === wanted.runsc_platform &&
    traits.cpu_features_sha256 === wanted.cpu_features_sha256 &&
    isSameGuest(traits.guest_sha256, wanted.guest_sha256)
  );
}

/** Where a former version says nothing, the host that is asked says whether it has the programs of the snapshot. */
function isSameGuest(has: string | undefined, wanted: string | undefined): boolean {
  return has === undefined || wanted === undefined || has === wanted;
}

interface Candidate {
  host: HostRow;
  digest: string;
}

function leastFilled(candidates: readonly Candidate[], random: () => number): Candidate | undefined {
  return candidates
    .map((candidate) => ({ ...candidate, fill: fill(candidate.host), tie: random() }))
    .sort((left, right) => left.fill - right.fill || left.tie - right.tie)[0];
}

function sample(candidates: Candidate[], random: () => number): Candidate[] {
  if (candidates.length <= ALL_LOOKED_AT) return candidates;
  const drawn = new Set<Candidate>();
  for (let draw = 0; draw < SAMPLE_HOSTS; draw += 1) {
    const one = candidates[Math.floor(random() * candidates.length)];
    if (one !== undefined) drawn.add(one);
  }
  return [...drawn];
}

function digestOf(host: HostRow, image: string): string | undefined {
  return host.images.find(({ name, digest }) => name === image || digest === image)?.digest;
}

function isSound(host: HostRow): boolean {
  return host.state === 'connected' && !host.degraded && host.faults.length === 0;
}

function isOpen(host: HostRow): boolean {
  return roomOf(host) > 0;
}

/** Sandboxes that it would take now. */
export function roomOf(host: HostRow): number {
  return isSound(host) ? Math.max(0, room(host)) : 0;
}

function room(host: HostRow): number {
  return host.capacity - host.sandboxes - host.placed;
}

function fill(host: HostRow): number {
  return (host.sandboxes + host.placed) / Math.max(1, host.capacity);
}
