/** Names to addresses that the proxy may connect to: all of a name's addresses are good ones, or none is used. */
import { Resolver } from 'node:dns/promises';
import { networkInterfaces } from 'node:os';
import type { EgressTarget } from '../../shared/network.ts';
import { type AddressRefusal, classifyAddress } from './addresses.ts';

/** Answers with the addresses of a name; empty for a name without one. */
export type Lookup = (name: string) => Promise<readonly string[]>;

export type Resolution =
  | { readonly ok: true; readonly addresses: readonly string[] }
  | { readonly ok: false; readonly reason: 'unresolved' }
  | { readonly ok: false; readonly reason: 'address'; readonly refusal: AddressRefusal };

const LOOKUP_TIMEOUT_MS = 5_000;
const LOOKUP_TRIES = 2;
const MAX_ADDRESSES = 8;

/** Asks name servers only: what the machine's own hosts file says is no business of a session's. */
export const dnsLookup: Lookup = async (name) => {
  const resolver = new Resolver({ timeout: LOOKUP_TIMEOUT_MS, tries: LOOKUP_TRIES });
  const timer = setTimeout(() => resolver.cancel(), LOOKUP_TIMEOUT_MS).unref();
  // With the dot at its end a name is whole: no search domain of this machine is tried behind it.
  const whole = `${name}.`;
  const answers = await Promise.allSettled([resolver.resolve4(whole), resolver.resolve6(whole)]);
  clearTimeout(timer);
  return answers.flatMap((answer) => (answer.status === 'fulfilled' ? answer.value : []));
};

/**
 * The addresses that are returned are the ones to connect to: asking again could give others. Addresses that the
 * operator wrote down are the operator's to answer for.
 */
export async function resolveTarget(
  target: EgressTarget,
  { hosts, lookup }: { hosts: ReadonlyMap<string, readonly string[]>; lookup: Lookup },
): Promise<Resolution> {
  const written = hosts.get(target.host);
  if (written !== undefined) return { ok: true, addresses: written };
  const found = target.kind === 'address' ? [target.host] : await lookup(target.host).catch(() => []);
  if (found.length === 0) return { ok: false, reason: 'unresolved' };
  const own = ownAddresses();
  for (const address of found) {
    const classified = classifyAddress(address);
    const verdict = classified === 'public' && own.has(address) ? 'this_host' : classified;
    if (verdict !== 'public') return { ok: false, reason: 'address', refusal: verdict };
  }
  return { ok: true, addresses: found.slice(0, MAX_ADDRESSES) };
}

/** A public address of this machine leads to it just as a private one. */
function ownAddresses(): ReadonlySet<string> {
  return new Set(
    Object.values(networkInterfaces()).flatMap((list = []) => list.map(({ address }) => address)),
  );
}
