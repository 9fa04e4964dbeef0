/** One suite for every way a supervisor can run: as a plain process, and as PID 1 of a real sandbox. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { GuestUnderTest } from './guest-under-test.ts';
import { describeArchives } from './suite/archives.ts';
import { describeFileTransfers } from './suite/file-transfers.ts';
import { describeFiles } from './suite/files.ts';
import { describeKernelAttacks } from './suite/kernel-attacks.ts';
import { describeNode } from './suite/node.ts';
import { describeNodePrograms } from './suite/node-programs.ts';
import { describeProcesses } from './suite/processes.ts';
import { describePython } from './suite/python.ts';
import { describePythonDisplay } from './suite/python-display.ts';
import { describePythonPrograms } from './suite/python-programs.ts';
import { describeShell } from './suite/shell.ts';
import { describeShellAsBash } from './suite/shell-as-bash.ts';
import { describeStreams } from './suite/streams.ts';

const SETUP_TIMEOUT_MS = 60_000;

type Start = () => Promise<GuestUnderTest>;

/** `node`: the interpreter of the JavaScript kernel, where there is one. */
export function describeGuest(name: string, start: Start, { node }: { node?: string } = {}): void {
  describeStarted(name, start, (guest) => {
    describe('programs', () => describeProcesses(guest));
    describe('streams', () => describeStreams(guest));
    describe('the Python kernel', () => describePython(guest));
    describe('a cell that speaks for the kernel', () => describeKernelAttacks(guest));
    describe('what a Python cell shows', () => describePythonDisplay(guest));
    describe('programs in Python', () => describePythonPrograms(guest));
    if (node !== undefined) describe('the JavaScript kernel', () => describeNode(guest, node));
    if (node !== undefined) describe('programs in JavaScript', () => describeNodePrograms(guest, node));
    describe('the shell', () => describeShell(guest));
    describe('the shell as bash', () => describeShellAsBash(guest));
    describe('the file server', () => describeFiles(guest));
    describe('streams of files', () => describeFileTransfers(guest));
    describe('archives', () => describeArchives(guest));

    it('ends with its link', async () => {
      guest().link.close();
      await guest().ended;
      expect((await guest().link.closed).reason).toBe('link_closed');
    });
  });
}

export function describeStarted(
  name: string,
  start: Start,
  suites: (guest: () => GuestUnderTest) => void,
): void {
  describe(`The guest, ${name}`, { timeout: SETUP_TIMEOUT_MS }, () => {
    let started: GuestUnderTest | undefined;
    const guest = () => {
      if (started === undefined) throw new Error('the supervisor did not start');
      return started;
    };

    beforeAll(async () => {
      started = await start();
    }, SETUP_TIMEOUT_MS);
    afterAll(async () => {
      await started?.stop();
    }, SETUP_TIMEOUT_MS);

    suites(guest);
  });
}
