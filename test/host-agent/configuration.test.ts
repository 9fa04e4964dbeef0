import { describe, expect, test } from 'vitest';
import { readConfiguration } from '../../host-agent/configuration.ts';

const ENVIRONMENT = {
  SANDGATE_STATE_DIR: '/var/lib/sandgate',
  SANDGATE_EDGE_URL: 'https://edge.example/',
  SANDGATE_RUNSC: '/usr/bin/runsc',
  SANDGATE_IMAGES_DIR: '/var/cache/images',
  SANDGATE_GUEST_DIR: '/var/cache/guest',
  SANDGATE_DIGEST_LIBRARY: '/var/cache/digest/sha256.node',
  SANDGATE_STREAM_KEEPER: '/var/cache/stream-keeper/stream-keeper',
};

describe('the configuration of the agent', () => {
  test('needs only what has no default', () => {
    const read = readConfiguration(ENVIRONMENT);
    if (!read.ok) throw new Error(read.detail);
    expect(read.value).toMatchObject({
      hostDir: '/var/lib/sandgate/host',
      edgeOrigin: 'https://edge.example',
      enrolmentToken: undefined,
      logLevel: 'info',
    });
    expect(read.value.capacity).toBeGreaterThan(0);
  });

  test('gives agents on different state folders different cgroups', () => {
    const parents = ['/a', '/b'].map((folder) => {
      const read = readConfiguration({ ...ENVIRONMENT, SANDGATE_STATE_DIR: folder });
      return read.ok ? read.value.cgroupParent : '';
    });
    expect(parents[0]).toMatch(/^\/sandgate-[0-9a-f]{8}$/);
    expect(parents[0]).not.toBe(parents[1]);
  });

  test('takes an empty variable for one that is not set', () => {
    const read = readConfiguration({ ...ENVIRONMENT, SANDGATE_ENROLLMENT_TOKEN: '', SANDGATE_CAPACITY: '' });
    expect(read.ok && read.value.enrolmentToken).toBeUndefined();
  });

  test('keeps no more sandboxes ahead than the host can spare', () => {
    const pool = (more: NodeJS.ProcessEnv) => {
      const read = readConfiguration({ ...ENVIRONMENT, ...more });
      return read.ok ? read.value.pool : undefined;
    };
    expect(pool({ SANDGATE_CAPACITY: '100' })).toMatchObject({ floor: 1, ceiling: 8, image: 'python' });
    expect(pool({ SANDGATE_CAPACITY: '8' })).toMatchObject({ floor: 1, ceiling: 2 });
    expect(pool({ SANDGATE_CAPACITY: '3' })).toMatchObject({ floor: 0, ceiling: 0 });
    expect(pool({ SANDGATE_POOL_CEILING: '20', SANDGATE_POOL_FLOOR: '5' })).toMatchObject({
      floor: 5,
      ceiling: 20,
    });
  });

  test.each([
    ['SANDGATE_POOL_IMPORTS', 'os; import x'],
    ['SANDGATE_POOL_FLOOR', '-1'],
    ['SANDGATE_EDGE_URL', 'ftp://edge.example'],
    ['SANDGATE_STATE_DIR', undefined],
    ['SANDGATE_CAPACITY', '0'],
    ['SANDGATE_CAPACITY', 'many'],
    ['SANDGATE_CGROUP_PARENT', 'no-slash'],
  ])('names %s where it is %s', (name, value) => {
    const read = readConfiguration({ ...ENVIRONMENT, [name]: value });
    expect(read.ok).toBe(false);
    if (!read.ok) expect(read.detail).toContain(name);
  });
});
