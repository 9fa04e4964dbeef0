/** The service on a machine that systemd runs: under everything that its unit forbids, stopped, killed, removed. One suite, for any such machine. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { defaultCgroupParent } from '../../host-agent/configuration.ts';
import { type AgentStatus, AgentStatusSchema } from '../../host-agent/local-control/status.ts';
import { setUp } from '../../host-agent/setup/setup.ts';
import { silentProgress } from '../../host-agent/setup/step.ts';
import { type Stack, startStack } from '../../scripts/development/stack.ts';
import { locations } from '../../scripts/locations.ts';
import type { Ended } from '../fixtures/private-machine.ts';
import { ApiClient } from './client.ts';
import { fillCache } from './machine-cache.ts';
import type { ServiceMachine } from './service-machine.ts';
import { until } from './until.ts';

const COMMAND = fileURLToPath(new URL('../../host-agent/sandgate-host.ts', import.meta.url));
const STATE = '/var/lib/sandgate';
const SERVICE = 'sandgate-host.service';
const CONNECT_MS = 60_000;
/** Far less than systemd waits for processes that do not end when they are killed. */
const BACK_MS = 120_000;

let stateDir: string;
let stack: Stack;
let machine: ServiceMachine;

async function host(...argv: string[]): Promise<Ended> {
  return machine.run(['sandgate-host', ...argv]);
}

async function property(name: string): Promise<string> {
  return (await machine.run(['systemctl', 'show', '-P', name, SERVICE])).stdout.trim();
}

/** Undefined while no agent answers that is connected. */
async function connected(): Promise<AgentStatus | undefined> {
  const { code, stdout } = await host('status', '--json');
  return code === 0 ? AgentStatusSchema.parse(JSON.parse(stdout)) : undefined;
}

async function client(): Promise<ApiClient> {
  return new ApiClient(stack.url, await stack.token());
}

/** Whether a sandbox stands still, and none runs. */
async function allFrozen(): Promise<true | undefined> {
  const parent = defaultCgroupParent(`${STATE}/host`);
  const found = await machine.run([
    'sh',
    '-c',
    `cat /sys/fs/cgroup/freezer${parent}/*/freezer.state || grep -h ^frozen /sys/fs/cgroup${parent}/*/cgroup.events`,
  ]);
  const states = found.stdout.split('\n').filter(Boolean);
  return states.length > 0 && states.every((state) => ['FROZEN', 'frozen 1'].includes(state))
    ? true
    : undefined;
}

/** `makeMachine` fails where there is none: nothing is skipped. */
export function describeService(name: string, makeMachine: () => Promise<ServiceMachine>): void {
  describe(name, () => {
    beforeAll(async () => {
      stateDir = await mkdtemp(join(tmpdir(), 'sandgate-e2e-'));
      const places = { ...locations(process.env), stateDir };
      const installation = await setUp(places, process.env, silentProgress);
      stack = await startStack({ locations: places, installation, port: 0, hostAgent: false });
      machine = await makeMachine();
      await fillCache(machine, installation, places.cacheDir);
    }, 600_000);

    afterAll(async () => {
      await machine?.stop();
      await stack?.stop();
      if (stateDir !== undefined) await rm(stateDir, { recursive: true, force: true });
    }, 180_000);

    test('waits for its identity, and starts with it', async () => {
      const installed = await machine.run([process.execPath, COMMAND, 'install']);
      expect(installed).toMatchObject({ code: 0, stderr: '' });
      expect(installed.stdout).toContain(`${SERVICE} enabled`);
      expect(await property('ActiveState')).toBe('inactive');
      // The machine has the ports of this one, and another host may have that of the metrics.
      await machine.run([
        'sed',
        '-i',
        's/^SANDGATE_METRICS_PORT=.*/SANDGATE_METRICS_PORT=0/',
        `${STATE}/host.env`,
      ]);
      const token = await stack.operator.createEnrollmentToken();
      const enrolled = await host('enroll', stack.url, token, '--origin', stack.keys.edge_origin);
      expect(enrolled).toMatchObject({ code: 0, stderr: '' });
      await until('the agent is connected', CONNECT_MS, connected);
      expect(await property('ActiveState')).toBe('active');
    }, 300_000);

    test('runs calls under all that the unit forbids, with nothing for the doctor to fail', async () => {
      const session = await (await client()).open();
      expect((await session.py('123456 * 654321')).value).toBe('80779853376');
      expect((await session.sh('echo there')).stdout).toBe('there\n');
      const { code, stdout } = await host('doctor');
      expect(stdout).not.toContain('FAIL');
      expect(stdout).toMatch(/^pass {2}service +active$/m);
      expect(code).toBe(0);
      await session.delete();
    });

    test('lets a call end before it is started anew, and goes on with its sandbox', async () => {
      const session = await (await client()).open();
      const command = 'echo begun; sleep 10; echo end';
      const stream = await session.stream('shell', { command }, { timeoutMs: 60_000 });
      const call = await stream.collectActingOn('begun', async () => {
        const restarted = await machine.run(['systemctl', 'restart', SERVICE]);
        expect(restarted).toMatchObject({ code: 0, stderr: '' });
      });
      expect(call.stdout).toBe('begun\nend\n');
      expect(call.end?.status).toBe('succeeded');
      await until('the agent is connected', CONNECT_MS, connected);
      expect(await session.sh('echo again')).toMatchObject({ stdout: 'again\n', state_lost: false });
      await session.delete();
    });

    test('leaves no sandbox when it is stopped', async () => {
      const session = await (await client()).open();
      await until('every sandbox stands still', CONNECT_MS, allFrozen);
      expect(await machine.run(['systemctl', 'stop', SERVICE])).toMatchObject({ code: 0, stderr: '' });
      expect(await allFrozen()).toBeUndefined();
      expect(await machine.run(['systemctl', 'start', SERVICE])).toMatchObject({ code: 0, stderr: '' });
      await until('the agent is connected', CONNECT_MS, connected);
      expect(await session.sh('echo again')).toMatchObject({ stdout: 'again\n', state_lost: true });
      await session.delete();
    });

    test('is back after it was killed, whatever stood still then', async () => {
      await (await client()).open();
      await until('every sandbox stands still', CONNECT_MS, allFrozen);
      const pid = await property('MainPID');
      // What thaws the sandboxes is slower than systemd this time.
      await machine.run(['pkill', '-STOP', '-f', 'sandgate-thaw-guard']);
      await machine.run(['kill', '-KILL', pid]);
      await until('systemd has seen it', CONNECT_MS, async () =>
        (await property('SubState')) === 'running' ? undefined : true,
      );
      await machine.run(['pkill', '-CONT', '-f', 'sandgate-thaw-guard']);
      const back = await until('another agent is connected', BACK_MS, async () => {
        const status = await connected();
        return status === undefined || String(status.pid) === pid ? undefined : status;
      });
      expect(await property('NRestarts')).toBe('1');
      // A pid of the agent's own namespace.
      expect(String(back.pid)).toBe(await property('MainPID'));
      const session = await (await client()).open();
      expect((await session.sh('echo there')).stdout).toBe('there\n');
    }, 300_000);

    test('leaves nothing behind when it is uninstalled', async () => {
      await until('every sandbox stands still', CONNECT_MS, allFrozen);
      const removed = await host('uninstall', '--yes');
      expect(removed).toMatchObject({ code: 0, stderr: '' });
      const places = ['/etc/systemd', '/usr/local/bin', '/var/lib', '/run', '/sys/fs/cgroup'];
      const found = await machine.run(['find', ...places, '-name', '*sandgate*']);
      expect(found.stdout).toBe('');
      expect((await machine.run(['ps', '-e', '-o', 'args'])).stdout).not.toMatch(
        /\/var\/lib\/sandgate|thaw-guard|runsc/,
      );
      expect(await property('LoadState')).toBe('not-found');
      expect((await machine.run(['grep', '-c', 'sandgate/', '/proc/1/mountinfo'])).stdout).toBe('0\n');
    });
  });
}
