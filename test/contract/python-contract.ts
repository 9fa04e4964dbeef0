import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Sandbox } from '../../host-agent/sandbox/port.ts';
import { call, type GetSubject, python, startSandbox } from './subject.ts';

export function describePython(subject: GetSubject): void {
  describe('python', () => {
    let sandbox: Sandbox;
    beforeAll(async () => {
      sandbox = await startSandbox(subject());
    });
    afterAll(() => sandbox.destroy());

    it('gives the value of the last expression, exact beyond 2^53', async () => {
      expect(await python(sandbox, '123456 * 654321')).toMatchObject({
        status: 'succeeded',
        value: '80779853376',
        exitCode: 0,
        error: null,
        stateLost: false,
      });
      expect((await python(sandbox, '2 ** 70')).value).toBe('1180591620717411303424');
      expect((await python(sandbox, 'nothing = 1')).value).toBeNull();
    });

    it('keeps variables from call to call', async () => {
      await python(sandbox, 'x = 41');
      expect((await python(sandbox, 'x + 1')).value).toBe('42');
    });

    it('keeps the order of each stream', async () => {
      const code = "import sys\nprint('a')\nprint('b', file=sys.stderr)\nprint('c')";
      expect(await python(sandbox, code)).toMatchObject({ stdout: 'a\nc\n', stderr: 'b\n', value: null });
    });

    it('says which exception ended a cell, and lives on', async () => {
      await python(sandbox, 'kept = 7');
      const failed = await python(sandbox, '1/0');
      expect(failed).toMatchObject({ status: 'failed', exitCode: 1, value: null, stateLost: false });
      expect(failed.error).toMatchObject({ name: 'ZeroDivisionError', message: 'division by zero' });
      expect((await python(sandbox, 'kept')).value).toBe('7');
    });

    it('gives the exit code of sys.exit and keeps the kernel', async () => {
      await python(sandbox, 'kept = 8');
      expect(await python(sandbox, 'import sys\nsys.exit(3)')).toMatchObject({
        status: 'failed',
        exitCode: 3,
        stateLost: false,
      });
      expect((await python(sandbox, 'kept')).value).toBe('8');
    });

    it('says that variables are lost when the kernel died, once, and has a new kernel then', async () => {
      await python(sandbox, 'gone = 1');
      expect(await python(sandbox, 'import os\nos._exit(3)')).toMatchObject({
        status: 'failed',
        exitCode: 3,
        stateLost: true,
      });
      const next = await python(sandbox, "'gone' in globals()");
      expect(next).toMatchObject({ value: 'False', stateLost: false });
    });

    it('is not had by an image without its interpreter, which says so', async () => {
      const missing = await call(sandbox, 'node', { code: '1' }, { stdin: null });
      expect(missing).toMatchObject({
        status: 'failed',
        error: { name: 'InterpreterMissing', message: 'the image has no node' },
        stateLost: false,
      });
      expect((await python(sandbox, '1')).value).toBe('1');
    });

    it('finds its input at its end where the call takes none', async () => {
      const read = await python(sandbox, 'input()', { stdin: null });
      expect(read).toMatchObject({ status: 'failed', error: { name: 'EOFError' } });
    });

    it('comes to the end of its input, and the next cell has input again', async () => {
      for (const text of ['all of it', '', 'more'])
        expect((await python(sandbox, 'import sys\nsys.stdin.read()', { stdin: text })).value).toBe(
          `'${text}'`,
        );
      expect((await python(sandbox, 'input()', { stdin: 'mine\n' })).value).toBe("'mine'");
    });

    it('reads its input', async () => {
      expect((await python(sandbox, 'input()', { stdin: 'é漢😀\nrest' })).value).toBe("'é漢😀'");
    });
  });
}
