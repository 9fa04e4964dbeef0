import { describe, expect, it } from 'vitest';
import { parseCgroupMounts } from '../../../host-agent/cgroup/mounts.ts';

const line = (mountPoint: string, type: string, superOptions: string): string =>
  `30 23 0:26 / ${mountPoint} rw,nosuid,nodev,noexec,relatime shared:9 - ${type} ${type} ${superOptions}`;

describe('parseCgroupMounts', () => {
  it('finds the controllers of version 1, joint mounts, named hierarchies and a version 2 beside them', () => {
    const mounts = parseCgroupMounts(
      [
        line('/sys/fs/cgroup', 'tmpfs', 'ro,mode=755'),
        line('/sys/fs/cgroup/memory', 'cgroup', 'rw,memory'),
        line('/sys/fs/cgroup/cpu,cpuacct', 'cgroup', 'rw,cpu,cpuacct'),
        line('/sys/fs/cgroup/systemd', 'cgroup', 'rw,xattr,name=systemd'),
        line('/sys/fs/cgroup/unified', 'cgroup2', 'rw,nsdelegate'),
        '',
      ].join('\n'),
    );
    expect(mounts.v1.get('memory')).toBe('/sys/fs/cgroup/memory');
    expect(mounts.v1.get('cpu')).toBe('/sys/fs/cgroup/cpu,cpuacct');
    expect(mounts.v1.get('cpuacct')).toBe('/sys/fs/cgroup/cpu,cpuacct');
    expect(mounts.v1All).toContain('/sys/fs/cgroup/systemd');
    expect(mounts.v2).toBe('/sys/fs/cgroup/unified');
  });

  it('finds a machine with version 2 only', () => {
    const mounts = parseCgroupMounts(line('/sys/fs/cgroup', 'cgroup2', 'rw'));
    expect(mounts).toEqual({ v1: new Map(), v1All: [], v2: '/sys/fs/cgroup' });
  });

  it('reads a mount point with a space and takes the first of two mounts', () => {
    const mounts = parseCgroupMounts(
      [line('/odd\\040place', 'cgroup', 'rw,memory'), line('/second', 'cgroup', 'rw,memory')].join('\n'),
    );
    expect(mounts.v1.get('memory')).toBe('/odd place');
  });

  it('finds nothing where nothing is', () => {
    expect(parseCgroupMounts(line('/', 'ext4', 'rw'))).toEqual({ v1: new Map(), v1All: [], v2: undefined });
  });
});
