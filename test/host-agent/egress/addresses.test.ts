import { networkInterfaces } from 'node:os';
import { describe, expect, test } from 'vitest';
import { classifyAddress } from '../../../host-agent/egress/addresses.ts';
import { resolveTarget } from '../../../host-agent/egress/resolve.ts';

/** Each refused address beside its nearest public neighbour, where it has one: refusing everything would fail. */
const REFUSED: readonly (readonly [address: string, refusal: string, twin?: string])[] = [
  ['0.0.0.0', 'unspecified', '1.0.0.0'],
  ['0.255.255.255', 'unspecified'],
  ['10.0.0.0', 'private', '9.255.255.255'],
  ['10.255.255.255', 'private', '11.0.0.0'],
  ['100.64.0.0', 'shared', '100.63.255.255'],
  ['100.127.255.255', 'shared', '100.128.0.0'],
  ['100.100.100.200', 'metadata'],
  ['127.0.0.1', 'loopback', '126.255.255.255'],
  ['127.255.255.255', 'loopback', '128.0.0.0'],
  ['168.63.129.16', 'metadata', '168.63.129.17'],
  ['169.254.0.0', 'link_local', '169.253.255.255'],
  ['169.254.169.254', 'metadata'],
  ['169.254.170.2', 'metadata'],
  ['169.254.255.255', 'link_local', '169.255.0.0'],
  ['172.16.0.0', 'private', '172.15.255.255'],
  ['172.31.255.255', 'private', '172.32.0.0'],
  ['192.0.0.1', 'reserved', '192.0.1.1'],
  ['192.0.0.192', 'metadata'],
  ['192.0.2.1', 'reserved', '192.0.3.1'],
  ['192.31.196.1', 'reserved', '192.31.197.1'],
  ['192.52.193.1', 'reserved', '192.52.194.1'],
  ['192.88.99.1', 'reserved', '192.88.98.1'],
  ['192.168.0.0', 'private', '192.167.255.255'],
  ['192.168.255.255', 'private', '192.169.0.0'],
  ['192.175.48.1', 'reserved', '192.175.49.1'],
  ['198.18.0.0', 'reserved', '198.17.255.255'],
  ['198.19.255.255', 'reserved', '198.20.0.0'],
  ['198.51.100.1', 'reserved', '198.51.101.1'],
  ['203.0.113.1', 'reserved', '203.0.114.1'],
  ['224.0.0.1', 'multicast', '223.255.255.255'],
  ['239.255.255.255', 'multicast'],
  ['240.0.0.1', 'reserved'],
  ['255.255.255.255', 'reserved'],
  ['::', 'unspecified', '2606:4700::1111'],
  ['::1', 'loopback', '2001:4860:4860::8888'],
  ['::2', 'embedded_ipv4'],
  ['::ffff:127.0.0.1', 'embedded_ipv4'],
  ['::ffff:8.8.8.8', 'embedded_ipv4'],
  ['::ffff:7f00:1', 'embedded_ipv4'],
  ['0:0:0:0:0:ffff:7f00:0001', 'embedded_ipv4'],
  ['::127.0.0.1', 'embedded_ipv4'],
  ['::ffff:0:127.0.0.1', 'embedded_ipv4'],
  ['64:ff9b::127.0.0.1', 'embedded_ipv4'],
  ['64:ff9b::808:808', 'embedded_ipv4'],
  ['64:ff9b:1::a00:1', 'embedded_ipv4'],
  ['2002:7f00:1::1', 'embedded_ipv4', '2003::1'],
  ['2002:a00:1::', 'embedded_ipv4'],
  ['2001:0:7f00:1::', 'embedded_ipv4', '2001:200::1'],
  ['2001:0:4136:e378:8000:63bf:3fff:fdd2', 'embedded_ipv4'],
  ['2606:4700::5efe:7f00:1', 'embedded_ipv4', '2606:4700::5eff:7f00:1'],
  ['2606:4700::200:5efe:10.0.0.1', 'embedded_ipv4'],
  ['fd00:ec2::254', 'metadata'],
  ['fd20:ce::254', 'metadata'],
  ['fc00::1', 'private'],
  ['fdff:ffff::1', 'private'],
  ['fec0::1', 'private'],
  ['fe80::1', 'link_local'],
  ['febf::1', 'link_local'],
  ['fe80::1%eth0', 'not_an_address'],
  ['2606:4700::1111%1', 'not_an_address', '2606:4700::1112'],
  ['ff02::1', 'multicast'],
  ['2001:db8::1', 'reserved', '2001:db7::1'],
  ['2001:20::1', 'reserved'],
  ['3fff::1', 'reserved', '3ffe::1'],
  ['2620:4f:8000::1', 'reserved', '2620:4f:8001::1'],
  ['100::1', 'reserved'],
  ['5f00::1', 'reserved'],
  ['4000::1', 'reserved'],
  ['1fff::1', 'reserved', '2a00:1450:4001::200e'],
  ['', 'not_an_address'],
  ['localhost', 'not_an_address'],
  ['127.1', 'not_an_address'],
  ['0x7f.0.0.1', 'not_an_address'],
  ['2130706433', 'not_an_address'],
  ['8.8.8.8 ', 'not_an_address', '8.8.8.8'],
];

describe('an address', () => {
  const rows = REFUSED.map(([address, refusal, twin]) => ({ address, refusal, twin }));
  test.each(rows)('$address is refused as $refusal', ({ address, refusal, twin }) => {
    expect(classifyAddress(address)).toBe(refusal);
    if (twin !== undefined) expect(classifyAddress(twin)).toBe('public');
  });
});

describe('a target', () => {
  const lookup = async (name: string): Promise<string[]> => (name === 'good.example.com' ? ['8.8.8.8'] : []);
  const hosts = new Map([['internal.example.com', ['10.0.0.7']]]);

  test('gives the addresses that were looked up, or that the operator wrote down', async () => {
    const resolve = (host: string) => resolveTarget({ kind: 'name', host, port: 443 }, { hosts, lookup });
    expect(await resolve('good.example.com')).toEqual({ ok: true, addresses: ['8.8.8.8'] });
    expect(await resolve('internal.example.com')).toEqual({ ok: true, addresses: ['10.0.0.7'] });
    expect(await resolve('other.example.com')).toEqual({ ok: false, reason: 'unresolved' });
  });

  test('that is an address is checked like one that was looked up', async () => {
    const resolve = (host: string) => resolveTarget({ kind: 'address', host, port: 443 }, { hosts, lookup });
    expect(await resolve('8.8.4.4')).toEqual({ ok: true, addresses: ['8.8.4.4'] });
    expect(await resolve('10.0.0.7')).toEqual({ ok: false, reason: 'address', refusal: 'private' });
  });

  test('on this machine itself is refused under each of its addresses', async () => {
    const own = Object.values(networkInterfaces()).flatMap((list = []) => list.map(({ address }) => address));
    expect(own.length).toBeGreaterThan(0);
    for (const address of own) {
      const target = { kind: 'name', host: 'self.example.com', port: 80 } as const;
      const resolved = await resolveTarget(target, { hosts, lookup: async () => [address] });
      expect(resolved).toMatchObject({ ok: false, reason: 'address' });
    }
  });

  test('whose name server does not answer has no address', async () => {
    const failing = async (): Promise<never> => {
      throw new Error('ETIMEOUT');
    };
    const target = { kind: 'name', host: 'slow.example.com', port: 80 } as const;
    expect(await resolveTarget(target, { hosts, lookup: failing })).toEqual({
      ok: false,
      reason: 'unresolved',
    });
  });
});
