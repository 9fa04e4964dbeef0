/** A machine from bare to host and back: install, enrol, run what the unit says, drain, uninstall. */
import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import * as z from 'zod';
import { defaultCgroupParent } from '../../host-agent/configuration.ts';
import { AgentStatusSchema } from '../../host-agent/local-control/status.ts';
import { listProcesses } from '../../host-agent/process/process-table.ts';
import { setUp } from '../../host-agent/setup/setup.ts';
import { silentProgress } from '../../host-agent/setup/step.ts';
import { type Stack, startStack } from '../../scripts/development/stack.ts';
import { locations } from '../../scripts/locations.ts';
import { type Ended, PrivateMachine } from '../fixtures/private-machine.ts';
import { PATIENCE_MS } from '../patience.ts';
import { ApiClient } from './client.ts';
import { fillCache } from './machine-cache.ts';
import { until } from './until.ts';

const COMMAND = fileURLToPath(new URL('../../host-agent/sandgate-host.ts', import.meta.url));
const INSTALLED = '/usr/local/bin/sandgate-host';
const STATE = '/var/lib/sandgate';
const UNIT = '/etc/systemd/system/sandgate-host.service';
const FindingsSchema = z.array(
  z.object({ check: z.string(), level: z.string(), found: z.string(), cure: z.string().nullable() }),
);

let stateDir: string;
let stack: Stack;
let machine: PrivateMachine;
let agent: ChildProcess | undefined;

beforeAll(async () => {
  stateDir = await mkdtemp(join(tmpdir(), 'sandgate-e2e-'));
  const places = { ...locations(process.env), stateDir };
  const installation = await setUp(places, process.env, silentProgress);
  stack = await startStack({ locations: places, installation, port: 0, hostAgent: false });
  machine = await PrivateMachine.start();
  await fillCache(machine, installation, places.cacheDir);
}, 600_000);

afterAll(async () => {
  agent?.kill('SIGKILL');
  await machine?.stop();
  await stack?.stop();
  await rm(stateDir, { recursive: true, force: true });
}, 180_000);

function host(...argv: string[]): Promise<Ended> {
  return machine.run([INSTALLED, ...argv]);
}

async function doctor(): Promise<Map<string, string>> {
  const { stdout } = await host('doctor', '--json');
  const findings = FindingsSchema.parse(JSON.parse(stdout));
  for (const { level, cure, check } of findings) expect(cure === null, check).toBe(level === 'pass');
  return new Map(findings.map(({ check, level }) => [check, level]));
}

/** What systemd would run, with the environment and the capabilities that it would give. */
async function startAgent(): Promise<void> {
  const unit = (await machine.run(['cat', UNIT])).stdout;
  const settings = (await machine.run(['cat', `${STATE}/host.env`])).stdout;
  const lines = [...unit.matchAll(/^Environment=(.+)$/gm)].map((match) => match[1] ?? '');
  const environment = [...lines, ...settings.split('\n').filter((line) => /^[A-Z_]+=/.test(line))];
  const command = /^ExecStart=(.+)$/m.exec(unit)?.[1]?.split(' ') ?? [];
  const capabilities = /^CapabilityBoundingSet=(.+)$/m.exec(unit)?.[1]?.split(' ') ?? [];
  const bounding = capabilities.map((name) => `+${name.replace(/^CAP_/, '').toLowerCase()}`).join(',');
  const confined = ['setpriv', `--bounding-set=-all,${bounding}`, '--no-new-privs', '--'];
  agent = machine.spawn([...confined, 'env', '-i', ...environment, ...command]);
  agent.stdout?.resume();
  agent.stderr?.pipe(process.stderr);
  await until('the agent is connected', PATIENCE_MS, async () => {
    const { code, stdout } = await host('status', '--json');
    return code === 0 && AgentStatusSchema.parse(JSON.parse(stdout)).edge_connected ? true : undefined;
  });
}

describe('sandgate-host on a bare machine', () => {
  test('installs, and says what is still missing', async () => {
    const installed = await machine.run([process.execPath, COMMAND, 'install']);
    expect(installed.stderr).toBe('');
    expect(installed.code).toBe(0);
    expect(installed.stdout).toContain('Next: sandgate-host enroll');
    const written = (await machine.written()).filter(
      (path) => !path.startsWith(`${STATE}/`) && !path.startsWith('/var/'),
    );
    expect(written.filter((path) => path.includes('sandgate'))).toEqual([
      '/etc/systemd/system/multi-user.target.wants/sandgate-host.service',
      UNIT,
      INSTALLED,
    ]);
    const found = await doctor();
    expect(Object.fromEntries(found)).toMatchObject({
      kernel: 'pass',
      cgroups: 'pass',
      'guest programs': 'pass',
      images: 'pass',
      enrolment: 'fail',
      agent: 'fail',
      edge: 'fail',
    });
    expect(await host('status')).toMatchObject({
      code: 1,
      stderr: expect.stringMatching(/^sandgate-host: no agent runs.*enroll.*\n$/),
    });
  }, 300_000);

  test('enrols once, with a token that then is spent', async () => {
    const token = await stack.operator.createEnrollmentToken();
    const origin = stack.keys.edge_origin;
    const enrolled = await host('enroll', stack.url, token, '--origin', origin);
    expect(enrolled.stderr).toBe('');
    expect(enrolled.stdout).toMatch(/^enrolled as hst_\S+ with /);
    expect(await host('enroll', stack.url, token)).toMatchObject({
      code: 1,
      stderr: expect.stringContaining('this host is enrolled'),
    });
    const settings = (await machine.run(['cat', `${STATE}/host.env`])).stdout;
    expect(settings).toContain(`SANDGATE_EDGE_URL=${stack.url}\n`);
    expect(settings).toContain('# SANDGATE_CAPACITY');
    expect(settings).not.toContain(token);
    const { stdout } = await machine.run(['stat', '-c', '%a', `${STATE}/host/identity.json`]);
    expect(stdout).toBe('600\n');
  });

  test('runs calls as the unit starts it, and the doctor finds nothing that fails', async () => {
    await startAgent();
    const session = await new ApiClient(stack.url, await stack.token()).open();
    expect((await session.py('6 * 7')).value).toBe('42');
    const status = AgentStatusSchema.parse(JSON.parse((await host('status', '--json')).stdout));
    expect(status).toMatchObject({ state: 'running', sandboxes: 1, edge_connected: true });
    expect(status.images[0]).toMatchObject({ name: 'python', sandboxes: 1 });
    const digest = status.images[0]?.digest ?? '';
    expect(await host('images', 'remove', digest)).toMatchObject({
      code: 1,
      stderr: expect.stringContaining('in use'),
    });
    const found = await doctor();
    expect([...found].filter(([, level]) => level === 'fail')).toEqual([]);
    expect(found.get('edge')).toBe('pass');
    expect(found.get('clock')).toBe('pass');
    await session.delete();
  });

  test('drains, comes back, upgrades over itself and stops in order', async () => {
    expect(await host('drain', '--timeout', '60', '--sandboxes')).toMatchObject({
      code: 0,
      stdout: expect.stringMatching(/^drained: 0 executions run, 0 sandboxes/),
    });
    expect(await host('resume')).toMatchObject({ code: 0, stdout: expect.stringMatching(/^running: /) });
    expect(await host('uninstall')).toMatchObject({ code: 2, stderr: expect.stringContaining('--yes') });
    expect(await host('uninstall', '--yes')).toMatchObject({
      code: 1,
      stderr: 'sandgate-host: the agent still runs: stop it first\n',
    });
    const again = await machine.run([process.execPath, COMMAND, 'install']);
    expect(again).toMatchObject({ code: 0, stderr: '' });
    expect((await host('status')).code).toBe(0);
    const ended = once(agent ?? process, 'exit');
    agent?.kill('SIGTERM');
    expect(await ended).toEqual([0, null]);
    agent = undefined;
  }, 300_000);

  test('removes everything again, also after an agent that was killed', async () => {
    await startAgent();
    const session = await new ApiClient(stack.url, await stack.token()).open();
    await session.sh('echo there');
    const ended = once(agent ?? process, 'exit');
    const { pid } = AgentStatusSchema.parse(JSON.parse((await host('status', '--json')).stdout));
    process.kill(pid, 'SIGKILL');
    await ended;
    agent = undefined;
    const removed = await host('uninstall', '--yes');
    expect(removed).toMatchObject({ code: 0, stderr: '' });
    expect((await machine.run(['ls', STATE])).code).not.toBe(0);
    const left = (await machine.written()).filter(
      (path) => path.includes('sandgate') && !path.startsWith('/tmp/'),
    );
    expect(left).toEqual([]);
    const groups = await machine.run([
      'find',
      '/sys/fs/cgroup',
      '-name',
      basename(defaultCgroupParent(`${STATE}/host`)),
    ]);
    expect(groups.stdout).toBe('');
    const processes = (await listProcesses()).filter(({ argv }) =>
      // Another machine of this kind may be there, whose paths only end like these.
      argv.some((text) => text.startsWith(`${STATE}/host`) || text.includes(`=${STATE}/host`)),
    );
    expect(processes).toEqual([]);
  });
});
