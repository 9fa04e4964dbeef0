/** `doctor`: everything a host needs, each with its cure. Exit code 0: nothing fails. */
import { existsSync } from 'node:fs';
import { readdir, readFile, stat, statfs } from 'node:fs/promises';
import { release } from 'node:os';
import { dirname, join } from 'node:path';
import type { Outcome } from '../../shared/errors.ts';
import { parseCgroupMounts } from '../cgroup/mounts.ts';
import { openImageStore } from '../images/store.ts';
import { askAgent } from '../local-control/client.ts';
import type { AgentStatus } from '../local-control/status.ts';
import { Runsc } from '../runsc/runsc.ts';
import { availableMemory } from '../sandbox/admission.ts';
import { askEdge, checkClock, checkReach } from './doctor/edge.ts';
import type { Finding, Level } from './doctor/finding.ts';
import {
  checkCgroups,
  checkDisk,
  checkKernel,
  checkMemory,
  checkProcessor,
  checkThreads,
} from './doctor/machine.ts';
import {
  checkAgent,
  checkEnrolment,
  checkGuest,
  checkImages,
  checkRootMaker,
  checkRunsc,
  checkService,
} from './doctor/software.ts';
import { EXIT_FAILED } from './failure.ts';
import type { Layout } from './layout.ts';
import { serviceState } from './service.ts';
import { readSettings } from './settings.ts';
import type { Subcommand } from './subcommand.ts';

const CPU = '/sys/devices/system/cpu';
const MARKS: Record<Level, string> = { pass: 'pass', warn: 'WARN', fail: 'FAIL' };

export const doctor: Subcommand = {
  summary:
    'Checks machine, software and edge; says for each what is wrong and its cure. Exit code 1: something fails.',
  usage: '[--json]',
  options: { json: { type: 'boolean' } },
  positionals: [0, 0],
  async run({ layout, flag }) {
    const agent = await askAgent(layout.hostDir, 'status');
    const findings = [
      ...(await checkMachine(layout)),
      ...(await checkSoftware(layout, agent)),
      ...(await checkEdge(layout, agent.ok ? agent.value.clock_ahead_ms : null)),
    ];
    if (flag('json')) console.log(JSON.stringify(findings));
    else for (const finding of findings) print(finding);
    return findings.some(({ level }) => level === 'fail') ? EXIT_FAILED : 0;
  },
};

function print({ check, level, found, cure }: Finding): void {
  console.log(`${MARKS[level]}  ${check.padEnd(15)} ${found}`);
  if (cure !== null) console.log(`${' '.repeat(22)}→ ${cure}`);
}

async function checkMachine(layout: Layout): Promise<Finding[]> {
  const mounts = parseCgroupMounts(await text('/proc/self/mountinfo'));
  const controllers = mounts.v2 === undefined ? '' : await text(join(mounts.v2, 'cgroup.controllers'));
  const smt = await text(`${CPU}/smt/control`);
  const meminfo = await text('/proc/meminfo');
  const dir = nearestExisting(layout.stateDir);
  const disk = await statfs(dir);
  const free = { bytes: disk.bavail * disk.bsize, inodes: disk.ffree, totalInodes: disk.files };
  return [
    checkKernel(release()),
    checkCgroups(mounts, controllers.trim().split(/\s+/)),
    checkProcessor({
      vulnerabilities: await vulnerabilities(),
      microcode: /^microcode\s*: (\S+)$/m.exec(await text('/proc/cpuinfo'))?.[1],
    }),
    checkThreads(smt === '' ? undefined : smt.trim(), (await text(`${CPU}/smt/active`)).trim() === '1'),
    checkMemory({
      availableBytes: availableMemory(meminfo),
      swapBytes: Number(/^SwapTotal:\s+(\d+) kB$/m.exec(meminfo)?.[1] ?? 0) * 1024,
    }),
    checkDisk(dir, free),
  ];
}

async function checkSoftware(layout: Layout, agent: Outcome<AgentStatus>): Promise<Finding[]> {
  const { hostDir, imagesDir, unitPath } = layout;
  const unit = await text(unitPath);
  const setting = (name: string): string | undefined =>
    new RegExp(`^Environment=${name}=(.+)$`, 'm').exec(unit)?.[1];
  const runscPath = setting('SANDGATE_RUNSC');
  const guestDir = setting('SANDGATE_GUEST_DIR');
  const runsc = runscPath === undefined ? undefined : await Runsc.open(inRoot(layout, runscPath), hostDir);
  const identity = await stat(join(hostDir, 'identity.json')).catch(() => undefined);
  return [
    checkRunsc(runsc?.ok === true ? { ok: true, value: runsc.value.version } : runsc, Date.now()),
    checkGuest(guestDir !== undefined && existsSync(join(inRoot(layout, guestDir), 'supervisor'))),
    checkRootMaker(isProgram('mkfs.erofs')),
    checkImages(await openImageStore(imagesDir).list()),
    checkEnrolment(identity?.mode),
    checkService(unit !== '', await serviceState(layout)),
    checkAgent(agent),
  ];
}

async function checkEdge({ settingsPath }: Layout, hostAheadMs: number | null): Promise<Finding[]> {
  const edgeUrl = (await readSettings(settingsPath)).SANDGATE_EDGE_URL;
  const answer = edgeUrl === undefined ? undefined : await askEdge(edgeUrl);
  return [checkReach(edgeUrl, answer), checkClock(answer, hostAheadMs)];
}

async function vulnerabilities(): Promise<Map<string, string>> {
  const found = new Map<string, string>();
  for (const name of await readdir(`${CPU}/vulnerabilities`).catch(() => [])) {
    found.set(name, (await text(`${CPU}/vulnerabilities/${name}`)).trim());
  }
  return found;
}

/** The unit names paths as the machine itself sees them. */
function inRoot({ root }: Layout, path: string): string {
  return root === '/' ? path : join(root, path);
}

function nearestExisting(dir: string): string {
  return existsSync(dir) || dir === dirname(dir) ? dir : nearestExisting(dirname(dir));
}

function isProgram(name: string): boolean {
  return ['/usr/sbin', '/usr/bin', '/sbin', '/bin'].some((dir) => existsSync(join(dir, name)));
}

/** Empty where it cannot be read. */
async function text(path: string): Promise<string> {
  return readFile(path, 'utf8').catch(() => '');
}
