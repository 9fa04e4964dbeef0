import { describe, expect, test } from 'vitest';
import { choosePlacement } from '../../../../worker/objects/pool/placement.ts';
import type { HostRow } from '../../../../worker/objects/pool/store.ts';

const digest = `sha256:${'1'.repeat(64)}`;

function host(name: string, facts: Partial<HostRow> = {}): HostRow {
  return {
    host_id: name,
    pool: 'default',
    state: 'connected',
    sandboxes: 0,
    placed: 0,
    capacity: 4,
    degraded: false,
    images: [{ name: 'python', digest }],
    faults: [],
    last_seen_at: 1,
    ...facts,
  };
}

const choose = (hosts: HostRow[], image = 'python') => choosePlacement(hosts, { image }, () => 0.5);

describe('a placement', () => {
  test('goes to the least filled host, by name of the image or by its digest', () => {
    const hosts = [host('a', { sandboxes: 2 }), host('b', { sandboxes: 1 }), host('c', { sandboxes: 3 })];
    expect(choose(hosts)).toEqual({ ok: true, value: { hostId: 'b', imageDigest: digest } });
    expect(choose(hosts, digest)).toEqual({ ok: true, value: { hostId: 'b', imageDigest: digest } });
  });

  test('counts what was placed since the last report', () => {
    const hosts = [host('a', { placed: 2 }), host('b', { sandboxes: 1 })];
    expect(choose(hosts)).toMatchObject({ value: { hostId: 'b' } });
    expect(choose([host('a', { sandboxes: 2, placed: 2 })])).toMatchObject({ code: 'no_host_available' });
  });

  test.each<[string, Partial<HostRow>]>([
    ['full', { sandboxes: 4 }],
    ['degraded', { degraded: true }],
    ['off by its clock', { faults: ['clock_skew'] }],
    ['known for receipts that were refused', { faults: ['receipts_refused'] }],
    ['suspect', { state: 'suspect' }],
    ['dead', { state: 'dead' }],
  ])('passes by a host that is %s', (_name, facts) => {
    expect(choose([host('a', facts), host('b', { sandboxes: 3 })])).toMatchObject({ value: { hostId: 'b' } });
    expect(choose([host('a', facts)])).toMatchObject({ ok: false, code: 'no_host_available' });
  });

  test('tells a pool without hosts from one without the image', () => {
    expect(choose([])).toMatchObject({ code: 'no_host_available' });
    expect(choose([host('a')], 'rust')).toMatchObject({ code: 'image_not_found' });
    expect(choose([host('a')], `sha256:${'2'.repeat(64)}`)).toMatchObject({ code: 'image_not_found' });
  });

  test('leaves out the hosts that have refused the session', () => {
    const hosts = [host('a'), host('b', { sandboxes: 3 })];
    const place = (except: string[]) => choosePlacement(hosts, { image: 'python', except }, () => 0.5);
    expect(place(['a'])).toMatchObject({ value: { hostId: 'b' } });
    expect(place(['a', 'b'])).toMatchObject({ ok: false, code: 'no_host_available' });
  });

  test('among equals is by chance', () => {
    const hosts = [host('a'), host('b')];
    const draws = [0.9, 0.1];
    expect(choosePlacement(hosts, { image: 'python' }, () => draws.shift() ?? 0)).toMatchObject({
      value: { hostId: 'b' },
    });
  });
});
