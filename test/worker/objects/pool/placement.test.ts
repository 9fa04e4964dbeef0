import { describe, expect, test } from 'vitest';
import { choosePlacement, mayRestore } from '../../../../worker/objects/pool/placement.ts';
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
    traits: null,
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
    ['cordoned', { faults: ['cordoned'] }],
    ['draining', { faults: ['draining'] }],
    ['suspect', { state: 'suspect' }],
    ['dead', { state: 'dead' }],
  ])('passes by a host that is %s', (_name, facts) => {
    expect(choose([host('a', facts), host('b', { sandboxes: 3 })])).toMatchObject({ value: { hostId: 'b' } });
    expect(choose([host('a', facts)])).toMatchObject({ ok: false, code: 'no_host_available' });
  });

  describe('of a snapshot', () => {
    const made = {
      runsc_version: '1',
      runsc_platform: 'systrap',
      cpu_features_sha256: 'c'.repeat(64),
      guest_sha256: 'd'.repeat(64),
    };
    const requires = { image: digest, ...made };
    const restored = (...hosts: HostRow[]) => choosePlacement(hosts, { image: digest, requires }, () => 0.5);

    test.each(Object.keys(made))('passes by a host with another %s, however empty it is', (name) => {
      const other = host('other', { traits: { ...made, [name]: 'e'.repeat(64) } });
      const fitting = host('fitting', { sandboxes: 3, traits: made });
      expect(restored(other, fitting)).toMatchObject({ value: { hostId: 'fitting' } });
      expect(restored(other)).toMatchObject({ ok: false, code: 'snapshot_mismatch' });
    });

    test('asks a host of a former version, which does not say what it lays into its sandboxes', () => {
      const { guest_sha256: _unsaid, ...former } = made;
      expect(restored(host('former', { traits: former }))).toMatchObject({ value: { hostId: 'former' } });
    });

    test.each<[string, boolean, HostRow[]]>([
      ['a host that fits lives, be it full', true, [host('fits', { traits: made, sandboxes: 4 })]],
      ['it is suspect', true, [host('fits', { traits: made, state: 'suspect' }), host('other')]],
      ['none lives', true, [host('other', { state: 'dead' })]],
      ['only others live', false, [host('fits', { traits: made, state: 'dead' }), host('other')]],
      ['it is out of the question', false, [host('lost', { traits: made }), host('other')]],
      ['only a host without the image lives beside it', true, [host('bare', { images: [] })]],
    ])('is worth waiting with or not: %s', (_case, isWorthIt, hosts) => {
      expect(mayRestore(hosts, { image: digest, requires, except: ['lost'] })).toBe(isWorthIt);
    });
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

  test('goes to a host that has something of the session, unless that is nearly full', () => {
    const near = (sandboxes: number) =>
      choosePlacement(
        [host('a', { capacity: 10 }), host('b', { capacity: 10, sandboxes })],
        { image: 'python', near: ['b'] },
        () => 0.5,
      );
    expect(near(8)).toMatchObject({ value: { hostId: 'b' } });
    expect(near(9)).toMatchObject({ value: { hostId: 'a' } });
  });

  test('of many draws a few and takes the least filled of those', () => {
    const hosts = Array.from({ length: 100 }, (_, index) =>
      host(`h${index}`, { capacity: 200, sandboxes: index }),
    );
    const draws = [0.7, 0.3, 0.5];
    expect(choosePlacement(hosts, { image: 'python' }, () => draws.shift() ?? 0)).toMatchObject({
      value: { hostId: 'h30' },
    });
  });

  test('says when it is worth to come back: soon for room, later for hosts that are away', () => {
    expect(choose([host('a', { sandboxes: 4 })])).toMatchObject({ retry_after_s: 2 });
    expect(choose([host('a', { faults: ['cordoned'] })])).toMatchObject({ retry_after_s: 5 });
    expect(choose([host('a', { state: 'suspect' })])).toMatchObject({ retry_after_s: 5 });
  });

  test('among equals is by chance', () => {
    const hosts = [host('a'), host('b')];
    const draws = [0.9, 0.1];
    expect(choosePlacement(hosts, { image: 'python' }, () => draws.shift() ?? 0)).toMatchObject({
      value: { hostId: 'b' },
    });
  });
});
