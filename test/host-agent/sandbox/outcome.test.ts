import { describe, expect, it } from 'vitest';
import { type OutcomeInput, toolOutcome } from '../../../host-agent/sandbox/outcome.ts';
import { toolEnd } from '../../../host-agent/sandbox/tools/tool.ts';

const QUIET = { oomKills: 0, cpuMs: 10, peakMemoryBytes: 5 };
const KILLED = { oomKills: 1, cpuMs: 25, peakMemoryBytes: 9 };
const ENDED: OutcomeInput = {
  end: toolEnd({ status: 'succeeded', exitCode: 0 }),
  cause: undefined,
  lost: undefined,
  before: QUIET,
  after: QUIET,
  egressBytes: 7,
  claimMemoryKill: () => false,
};
const KILL = { after: KILLED, claimMemoryKill: () => true };
const FAILED = toolEnd({ status: 'failed', exitCode: 1 });
const LOST = toolEnd({ status: 'lost', stateLost: true });

describe('the status of an execution', () => {
  it.each([
    ['succeeded', {}],
    ['failed', { end: FAILED }],
    ['failed', { end: toolEnd({ status: 'interrupted' }) }],
    ['succeeded', KILL],
    ['oom', { end: FAILED, ...KILL }],
    ['failed', { end: FAILED, after: KILLED }],
    ['timeout', { end: FAILED, cause: 'timeout' }],
    ['timeout', { end: FAILED, cause: 'timeout', ...KILL }],
    ['timeout', { cause: 'timeout' }],
    ['timeout', { end: LOST, cause: 'timeout', lost: 'destroyed' }],
    ['interrupted', { end: FAILED, cause: 'interrupt' }],
    ['succeeded', { cause: 'interrupt' }],
    ['oom', { end: LOST, lost: 'oom', after: KILLED }],
    ['crashed', { end: LOST, lost: 'crashed' }],
    ['interrupted', { end: LOST, lost: 'destroyed' }],
  ] as const)('is %s for %o', (status, difference) => {
    expect(toolOutcome({ ...ENDED, ...difference }).status).toBe(status);
  });
});

it('counts CPU time of the call only, and says the peak and what went out', () => {
  expect(toolOutcome({ ...ENDED, after: KILLED }).usage).toEqual({
    cpuMs: 15,
    peakMemoryBytes: 9,
    egressBytes: 7,
  });
});

it('says that state is lost whenever the sandbox is', () => {
  expect(toolOutcome({ ...ENDED, end: FAILED, lost: 'crashed' }).stateLost).toBe(true);
  expect(toolOutcome({ ...ENDED, end: FAILED }).stateLost).toBe(false);
});
