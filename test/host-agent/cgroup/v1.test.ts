/** What version 1 refuses; the rest of it is tested on a kernel. */
import { expect, it } from 'vitest';
import { V1_CONTROLLERS } from '../../../host-agent/cgroup/mounts.ts';
import { CgroupsV1 } from '../../../host-agent/cgroup/v1.ts';

it.each(V1_CONTROLLERS)('refuses a machine that lacks the controller %s', (lacking) => {
  const there = V1_CONTROLLERS.filter((controller) => controller !== lacking);
  const v1 = new Map(there.map((controller) => [controller, `/sys/fs/cgroup/${controller}`]));
  const mounts = { v1, v1All: [...v1.values()], v2: undefined };
  expect(() => new CgroupsV1(mounts, '/sandgate-test')).toThrow(lacking);
});
