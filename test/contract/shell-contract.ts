import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Sandbox } from '../../host-agent/sandbox/port.ts';
import { type GetSubject, shell, startSandbox } from './subject.ts';

export function describeShell(subject: GetSubject): void {
  describe('shell', () => {
    let sandbox: Sandbox;
    beforeAll(async () => {
      sandbox = await startSandbox(subject());
    });
    afterAll(() => sandbox.destroy());

    it('begins in the workspace with the variables of the session', async () => {
      const first = await shell(sandbox, 'pwd; echo $GREETING $HOME');
      expect(first).toMatchObject({ status: 'succeeded', exitCode: 0, signal: null });
      expect(first.stdout).toBe('/workspace\nhello there /workspace\n');
    });

    it('keeps the folder and exported variables, also of a call that exits', async () => {
      expect(await shell(sandbox, 'cd /tmp; export K=v; exit 7')).toMatchObject({
        status: 'failed',
        exitCode: 7,
        signal: null,
        stateLost: false,
      });
      expect((await shell(sandbox, 'echo $K $PWD; cd /workspace')).stdout).toBe('v /tmp\n');
    });

    it('says where it stands now when it has moved, and nothing of it otherwise', async () => {
      const fresh = await startSandbox(subject());
      const first = await shell(fresh, 'true');
      expect(first.shell).toEqual({ working_directory: '/workspace', environment: {} });
      expect((await shell(fresh, 'echo still')).shell).toBeUndefined();
      const moved = await shell(fresh, 'cd /tmp; export K=v; export GREETING=bye; exit 3');
      const here = { working_directory: '/tmp', environment: { K: 'v', GREETING: 'bye' } };
      expect(moved.shell).toEqual(here);
      expect((await shell(fresh, 'kill -9 $$')).shell).toBeUndefined();
      expect((await shell(fresh, 'cd /workspace')).shell).toEqual({
        ...here,
        working_directory: '/workspace',
      });
      await fresh.destroy();
    });

    it.each([
      ['-9', 'SIGKILL', 137],
      ['-SEGV', 'SIGSEGV', 139],
      ['-TERM', 'SIGTERM', 143],
    ])('R68: says that kill %s ended it', async (option, signal, exitCode) => {
      expect(await shell(sandbox, `kill ${option} $$`)).toMatchObject({ status: 'failed', signal, exitCode });
      expect((await shell(sandbox, 'echo alive')).stdout).toBe('alive\n');
    });

    it('gives a missing command as 127 with the shell’s own words', async () => {
      const missing = await shell(sandbox, 'no-such-command-here');
      expect(missing).toMatchObject({ status: 'failed', exitCode: 127 });
      expect(missing.stderr).toContain('no-such-command-here: command not found');
    });

    it('R35: hands bytes through as they are', async () => {
      expect((await shell(sandbox, "printf '10%%\\r50%%\\r100%%'")).stdout).toBe('10%\r50%\r100%');
      expect((await shell(sandbox, "printf ''")).stdout).toBe('');
      const bytes = await shell(sandbox, "printf 'A\\xff\\xfeB\\xe2\\x82'");
      expect(Buffer.concat(bytes.chunks.map((chunk) => chunk.bytes)).toString('base64')).toBe('Qf/+QuKC');
    });

    it('keeps the order of each stream', async () => {
      expect(await shell(sandbox, 'echo a; echo b >&2; echo c')).toMatchObject({
        stdout: 'a\nc\n',
        stderr: 'b\n',
      });
    });

    it('finds its input at its end where the call takes none', async () => {
      expect(await shell(sandbox, 'cat; echo end', { stdin: null })).toMatchObject({
        exitCode: 0,
        stdout: 'end\n',
      });
    });

    it('reads its input to the end', async () => {
      expect(await shell(sandbox, 'cat', { stdin: 'é\nlast' })).toMatchObject({
        exitCode: 0,
        stdout: 'é\nlast',
      });
    });
  });
}
