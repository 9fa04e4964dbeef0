/** Which addresses the proxy may connect to: public ones, and nothing that leads back into a private network. */
import { BlockList, isIPv4, isIPv6 } from 'node:net';

export type AddressVerdict = 'public' | AddressRefusal;
export type AddressRefusal =
  | 'not_an_address'
  | 'this_host'
  | 'unspecified'
  | 'loopback'
  | 'private'
  | 'shared'
  | 'link_local'
  | 'metadata'
  | 'multicast'
  | 'reserved'
  | 'embedded_ipv4';

type Subnet = readonly [network: string, prefix: number, refusal: AddressRefusal];

/** First match counts. From the registries of special-purpose addresses, and where clouds answer their guests. */
const IPV4: readonly Subnet[] = [
  ['168.63.129.16', 32, 'metadata'],
  ['169.254.169.254', 32, 'metadata'],
  ['169.254.170.2', 32, 'metadata'],
  ['100.100.100.200', 32, 'metadata'],
  ['192.0.0.192', 32, 'metadata'],
  ['0.0.0.0', 8, 'unspecified'],
  ['127.0.0.0', 8, 'loopback'],
  ['10.0.0.0', 8, 'private'],
  ['172.16.0.0', 12, 'private'],
  ['192.168.0.0', 16, 'private'],
  ['100.64.0.0', 10, 'shared'],
  ['169.254.0.0', 16, 'link_local'],
  ['224.0.0.0', 4, 'multicast'],
  ['192.0.0.0', 24, 'reserved'],
  ['192.0.2.0', 24, 'reserved'],
  ['192.31.196.0', 24, 'reserved'],
  ['192.52.193.0', 24, 'reserved'],
  ['192.88.99.0', 24, 'reserved'],
  ['192.175.48.0', 24, 'reserved'],
  ['198.18.0.0', 15, 'reserved'],
  ['198.51.100.0', 24, 'reserved'],
  ['203.0.113.0', 24, 'reserved'],
  ['240.0.0.0', 4, 'reserved'],
];

/** Only for a telling reason: what is not in 2000::/3 is refused in any case. */
const IPV6: readonly Subnet[] = [
  ['::1', 128, 'loopback'],
  ['::', 128, 'unspecified'],
  ['::ffff:0:0', 96, 'embedded_ipv4'],
  ['::ffff:0:0:0', 96, 'embedded_ipv4'],
  ['::', 96, 'embedded_ipv4'],
  ['64:ff9b::', 96, 'embedded_ipv4'],
  ['64:ff9b:1::', 48, 'embedded_ipv4'],
  ['2002::', 16, 'embedded_ipv4'],
  ['2001::', 32, 'embedded_ipv4'],
  ['fd00:ec2::254', 128, 'metadata'],
  ['fd20:ce::254', 128, 'metadata'],
  ['fc00::', 7, 'private'],
  ['fec0::', 10, 'private'],
  ['fe80::', 10, 'link_local'],
  ['ff00::', 8, 'multicast'],
  ['2001::', 23, 'reserved'],
  ['2001:db8::', 32, 'reserved'],
  ['2620:4f:8000::', 48, 'reserved'],
  ['3fff::', 20, 'reserved'],
];

function lists(subnets: readonly Subnet[], family: 'ipv4' | 'ipv6') {
  return subnets.map(([network, prefix, refusal]) => {
    const list = new BlockList();
    list.addSubnet(network, prefix, family);
    return { list, refusal };
  });
}

const IPV4_LISTS = lists(IPV4, 'ipv4');
const IPV6_LISTS = lists(IPV6, 'ipv6');
const GLOBAL_UNICAST = new BlockList();
GLOBAL_UNICAST.addSubnet('2000::', 3, 'ipv6');
/** ISATAP: the last half of any address may be an IPv4 address in disguise. */
const ISATAP = /:5efe:/i;

export function classifyAddress(address: string): AddressVerdict {
  if (isIPv4(address)) {
    return IPV4_LISTS.find(({ list }) => list.check(address, 'ipv4'))?.refusal ?? 'public';
  }
  // A zone names an interface of this host: nothing public has one.
  if (!isIPv6(address) || address.includes('%')) return 'not_an_address';
  const listed = IPV6_LISTS.find(({ list }) => list.check(address, 'ipv6'));
  if (listed !== undefined) return listed.refusal;
  if (ISATAP.test(address)) return 'embedded_ipv4';
  return GLOBAL_UNICAST.check(address, 'ipv6') ? 'public' : 'reserved';
}
