import { createServer, type Server } from 'node:http';
import { describe, expect, onTestFinished, test } from 'vitest';
import { ahead, askEdge, checkClock, checkReach } from '../../../../host-agent/command/doctor/edge.ts';
import {
  checkCgroups,
  checkDisk,
  checkKernel,
  checkMemory,
  checkProcessor,
  checkThreads,
} from '../../../../host-agent/command/doctor/machine.ts';
import {
  checkAgent,
  checkEnrolment,
  checkImages,
  checkRootMaker,
  checkRunsc,
  checkService,
} from '../../../../host-agent/command/doctor/software.ts';
import type { AgentStatus } from '../../../../host-agent/local-control/status.ts';
import { failure, success } from '../../../../shared/errors.ts';

const GIB = 1024 ** 3;
const v1 = (...controllers: string[]) => ({
  v1: new Map(controllers.map((name) => [name, `/sys/fs/cgroup/${name}`])),
  v1All: [],
  v2: '/sys/fs/cgroup/unified',
});
const v2Only = { v1: new Map<string, string>(), v1All: [], v2: '/sys/fs/cgroup' };
const ALL_V1 = ['memory', 'cpu', 'cpuacct', 'pids', 'freezer'];
const vulnerabilities = (entries: Record<string, string>) => new Map(Object.entries(entries));
const disk = (bytes: number, inodes = 1e6) => checkDisk('/var/lib', { bytes, inodes, totalInodes: 2e6 });
const runsc = (release: string, today: string) =>
  checkRunsc(success({ printed: `0.0~${release}`, release }), Date.parse(today));
const AGENT: AgentStatus = {
  pid: 1,
  agent_version: '0.1.0',
  uptime_s: 1,
  state: 'running',
  host_id: null,
  edge_url: 'https://edge.example',
  edge_connected: true,
  clock_ahead_ms: null,
  degraded: false,
  sandboxes: 1,
  capacity: 2,
  executions: 0,
  runsc_version: 'x',
  images: [],
};

describe('the checks of the machine', () => {
  test.each([
    ['a kernel that is new', checkKernel('6.1.0-18-amd64'), 'pass'],
    ['a kernel of before 5.10', checkKernel('5.4.0'), 'warn'],
    ['a kernel of before 4.15', checkKernel('4.14.300'), 'fail'],
    ['a kernel that says nothing', checkKernel('unknown'), 'fail'],
    ['all controllers of version 1', checkCgroups(v1(...ALL_V1), []), 'pass'],
    ['version 1 without pids', checkCgroups(v1('memory', 'cpu', 'cpuacct', 'freezer'), []), 'fail'],
    ['version 1 without freezer', checkCgroups(v1('memory', 'cpu', 'cpuacct', 'pids'), []), 'fail'],
    ['all controllers of version 2', checkCgroups(v2Only, ['cpu', 'cpuset', 'memory', 'pids', 'io']), 'pass'],
    ['version 2 without memory', checkCgroups(v2Only, ['cpu', 'cpuset', 'pids']), 'fail'],
    ['version 2 without cpuset', checkCgroups(v2Only, ['cpu', 'memory', 'pids']), 'fail'],
    ['no control groups', checkCgroups({ ...v2Only, v2: undefined }, []), 'fail'],
    [
      'a processor with all leaks mitigated',
      checkProcessor({
        microcode: '0x1',
        vulnerabilities: vulnerabilities({ mds: 'Not affected', l1tf: 'Mitigation: PTE' }),
      }),
      'pass',
    ],
    [
      'a processor with an open leak',
      checkProcessor({
        microcode: '0x1',
        vulnerabilities: vulnerabilities({ mds: 'Vulnerable: no microcode' }),
      }),
      'warn',
    ],
    [
      'a kernel that tells no leaks',
      checkProcessor({ microcode: undefined, vulnerabilities: new Map() }),
      'warn',
    ],
    ['threads that are off', checkThreads('off', false), 'pass'],
    ['threads that are on', checkThreads('on', true), 'warn'],
    ['room on the disk', disk(50 * GIB), 'pass'],
    ['a disk that fills', disk(5 * GIB), 'warn'],
    ['a full disk', disk(GIB / 2), 'fail'],
    ['a disk without inodes', disk(50 * GIB, 12), 'fail'],
    [
      'a file system that counts no inodes',
      checkDisk('/d', { bytes: 50 * GIB, inodes: 0, totalInodes: 0 }),
      'pass',
    ],
    ['enough memory', checkMemory({ availableBytes: 8 * GIB, swapBytes: 0 }), 'pass'],
    ['little memory', checkMemory({ availableBytes: GIB, swapBytes: 0 }), 'warn'],
    ['swap', checkMemory({ availableBytes: 8 * GIB, swapBytes: GIB }), 'warn'],
    ['a runsc of this year', runsc('20240729.0', '2025-01-01'), 'pass'],
    ['a runsc of two years ago', runsc('20240729.0', '2026-11-29'), 'warn'],
    ['a runsc that is of another version', checkRunsc(failure('sandbox_failed', 'was expected'), 0), 'fail'],
    ['no runsc', checkRunsc(undefined, 0), 'fail'],
    ['what makes roots of images', checkRootMaker(true), 'pass'],
    ['nothing that makes roots of images', checkRootMaker(false), 'fail'],
    ['an image', checkImages([{ name: 'python' }]), 'pass'],
    ['no image', checkImages([]), 'fail'],
    ['a key for root only', checkEnrolment(0o100600), 'pass'],
    ['a key that others read', checkEnrolment(0o100644), 'fail'],
    ['no key', checkEnrolment(undefined), 'fail'],
    ['a service that runs', checkService(true, 'active'), 'pass'],
    ['a service that failed', checkService(true, 'failed'), 'fail'],
    ['a machine without systemd', checkService(true, undefined), 'warn'],
    ['no unit', checkService(false, undefined), 'fail'],
    ['an agent that is connected', checkAgent(success(AGENT)), 'pass'],
    ['an agent without its edge', checkAgent(success({ ...AGENT, edge_connected: false })), 'fail'],
    [
      'an agent that its edge refuses',
      checkAgent(
        success({
          ...AGENT,
          edge_connected: false,
          edge_refusal: { code: 'unauthenticated', detail: 'revoked' },
        }),
      ),
      'fail',
    ],
    ['an agent whose journal fails', checkAgent(success({ ...AGENT, degraded: true })), 'fail'],
    ['an agent that drains', checkAgent(success({ ...AGENT, state: 'draining' })), 'warn'],
    ['no agent', checkAgent(failure('not_found', 'no agent runs')), 'fail'],
  ])('%s: %#', (_what, finding, level) => {
    expect(finding.level).toBe(level);
    expect(finding.cure === null).toBe(level === 'pass');
    expect(finding.found).not.toBe('');
  });
});

test('the agent of a host that was revoked has the words of its edge, and how it comes back', () => {
  const edge_refusal = { code: 'unauthenticated', detail: 'the host was revoked' };
  const { found, cure } = checkAgent(success({ ...AGENT, edge_connected: false, edge_refusal }));
  expect(found).toContain('refused by the edge: unauthenticated: the host was revoked');
  expect(cure).toContain('sandgate-host enroll');
});

async function edge(headers: Record<string, string>, status = 200): Promise<{ url: string; server: Server }> {
  const server = createServer((_request, response) => {
    response.sendDate = false;
    response.writeHead(status, headers).end('{}');
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  onTestFinished(() => void server.close());
  const address = server.address();
  if (address === null || typeof address === 'string') throw new Error('no port');
  return { url: `http://127.0.0.1:${address.port}`, server };
}

const at = (offsetMs: number): Record<string, string> => ({
  date: new Date(Date.now() + offsetMs).toUTCString(),
});

describe('the checks of the edge', () => {
  test.each([
    ['agrees', 0, 'pass'],
    ['is 10 s ahead', 10_000, 'warn'],
    ['is 10 s behind', -12_000, 'warn'],
    ['is 10 min ahead', 600_000, 'fail'],
    ['is 10 min behind', -600_000, 'fail'],
  ])('a clock that %s', async (_what, offsetMs, level) => {
    const { url } = await edge(at(offsetMs));
    const answer = await askEdge(url);
    expect(checkReach(url, answer).level).toBe('pass');
    expect(checkClock(answer, null).level).toBe(level);
  });

  test('an edge that tells no time, answers wrongly, or is not there', async () => {
    expect(checkClock(await askEdge((await edge({})).url), null).level).toBe('warn');
    const failing = await edge({}, 500);
    expect(checkReach(failing.url, await askEdge(failing.url))).toMatchObject({
      level: 'fail',
      found: expect.stringContaining('500'),
    });
    expect(checkReach('http://127.0.0.1:9', await askEdge('http://127.0.0.1:9'))).toMatchObject({
      level: 'fail',
    });
    expect(checkReach(undefined, undefined).level).toBe('fail');
    expect(checkClock(undefined, null).level).toBe('warn');
  });

  test('what the agent knows of the clock goes before what an answer says', async () => {
    const answer = await askEdge((await edge(at(600_000))).url);
    expect(checkClock(answer, 200).level).toBe('pass');
    expect(checkClock(answer, 40_000)).toMatchObject({
      level: 'fail',
      found: expect.stringContaining('40 s ahead of the edge'),
    });
    expect(checkClock(answer, -8_000)).toMatchObject({ level: 'warn', found: '8 s behind the edge' });
  });

  test('the whole second of a date is not taken for skew', () => {
    expect(ahead(10_000, 10_900, 50)).toBe(0);
    expect(ahead(10_000, 11_000, 50)).toBe(0);
    expect(ahead(10_000, 12_000, 50)).toBe(-1_000);
    expect(ahead(12_000, 10_000, 500)).toBe(1_500);
  });
});
