/** systemd takes the controllers of version 2 away from groups that none of its units needs them in; not from ours. */
import { readFileSync } from 'node:fs';
import { afterAll, beforeAll, expect, it } from 'vitest';
import type { Cgroups } from '../../host-agent/cgroup/cgroups.ts';
import { openCgroups } from '../../host-agent/cgroup/open.ts';
import { ThisMachine } from './this-machine.ts';

const PARENT = '/sandgate-test-beside';
const LIMITS = {
  memoryBytes: 64 * 1024 * 1024,
  cpuQuotaUs: 50_000,
  cpuPeriodUs: 100_000,
  cpuShares: 512,
  pids: 32,
};

let machine: ThisMachine;
let cgroups: Cgroups;

beforeAll(async () => {
  machine = ThisMachine.open();
  cgroups = await openCgroups(PARENT);
});

afterAll(async () => {
  for (const name of await cgroups.list()) await cgroups.remove(name);
  await cgroups.removeParent();
});

it('runs on version 2 alone', () => {
  expect(cgroups.version).toBe(2);
});

it.each([
  ['units are read anew', ['systemctl', 'daemon-reload']],
  ['systemd starts itself anew', ['systemctl', 'daemon-reexec']],
  ['a unit comes and goes', ['systemd-run', '--wait', '--quiet', '--property=CPUWeight=50', 'true']],
])('keeps the limits of a group when %s', async (_, command) => {
  await cgroups.create('kept', LIMITS);
  expect(await machine.run(command)).toMatchObject({ code: 0 });
  const group = `/sys/fs/cgroup${PARENT}/kept`;
  expect(readFileSync(`${group}/cpu.max`, 'utf8')).toBe('50000 100000\n');
  expect(readFileSync(`${group}/memory.max`, 'utf8')).toBe(`${LIMITS.memoryBytes}\n`);
  expect(readFileSync(`${group}/pids.max`, 'utf8')).toBe('32\n');
  await cgroups.remove('kept');
});

it.each([
  ['between two sandboxes', ['systemctl', 'daemon-reload']],
  [
    'between two sandboxes, and starts a unit',
    ['systemd-run', '--wait', '--quiet', '--property=CPUWeight=50', 'true'],
  ],
])('makes the next group with its limits though systemd tidies %s', async (_, command) => {
  await cgroups.create('former', LIMITS);
  await cgroups.remove('former');
  expect(await machine.run(command)).toMatchObject({ code: 0 });
  await cgroups.create('next', LIMITS);
  expect(readFileSync(`/sys/fs/cgroup${PARENT}/next/cpu.max`, 'utf8')).toBe('50000 100000\n');
  await cgroups.remove('next');
});
