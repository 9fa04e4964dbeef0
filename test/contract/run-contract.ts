import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Sandbox } from '../../host-agent/sandbox/port.ts';
import {
  type CallOptions,
  type CallResult,
  call,
  file,
  type GetSubject,
  shell,
  startSandbox,
} from './subject.ts';

export function describeRun(subject: GetSubject): void {
  describe('run', () => {
    let sandbox: Sandbox;
    beforeAll(async () => {
      sandbox = await startSandbox(subject());
    });
    afterAll(() => sandbox.destroy());

    const run = (request: object, options: CallOptions = { stdin: null }): Promise<CallResult> =>
      call(sandbox, 'run', request, options);
    const write = (path: string, content: string) => file(sandbox, { operation: 'write', path, content });

    it.each([
      ['by its extension', 'a.py', 'import sys\nprint("hi", *sys.argv[1:])'],
      ['by its first line', 'tool', '#!/usr/bin/env python3\nimport sys\nprint("hi", *sys.argv[1:])'],
      ['of bash', 'b.sh', 'echo hi "$@"'],
      ['of perl', 'c.pl', 'print "hi @ARGV\n";'],
      ['with a name that looks like an option', '-d.sh', 'echo hi "$@"'],
      ['with a quote in its name', "it's.sh", 'echo hi "$@"'],
    ])('runs a file %s, with its arguments', async (_how, path, content) => {
      await write(path, content);
      const ran = await run({ path, args: ["a 'b", '$HOME'] });
      expect(ran).toMatchObject({ status: 'succeeded', exitCode: 0, error: null, stderr: '' });
      expect(ran.stdout).toBe("hi a 'b $HOME\n");
    });

    it('gives it its input, in the call or on the way, and its own end', async () => {
      await write('in.py', 'import sys\nprint(sys.stdin.read().upper(), end="")\nsys.exit(3)');
      const given = await run({ path: 'in.py', stdin: 'é and more' });
      expect(given).toMatchObject({ status: 'failed', exitCode: 3, signal: null, stdout: 'É AND MORE' });
      expect((await run({ path: 'in.py' }, { stdin: 'later' })).stdout).toBe('LATER');
      expect((await run({ path: 'in.py' })).stdout).toBe('');
    });

    it('runs what is executable, and says by what signal it died', async () => {
      await shell(
        sandbox,
        "cp /usr/bin/env ./program; printf '#!/bin/bash\\nkill -SEGV $$\\n' > dies; chmod +x dies",
      );
      expect((await run({ path: 'program', args: ['echo', 'from env'] })).stdout).toBe('from env\n');
      expect(await run({ path: 'dies' })).toMatchObject({
        status: 'failed',
        signal: 'SIGSEGV',
        exitCode: 139,
      });
    });

    it.each([
      ['FileNotFound', { path: 'none.py' }, 'none.py: no such file'],
      ['IsADirectory', { path: '/tmp' }, '/tmp: it is a directory'],
      ['UnknownLanguage', { path: 'notes.txt' }, 'its name and first line do not say its language'],
      ['InterpreterMissing', { path: 'a.rb' }, 'the image has no ruby to run Ruby with; it can run python'],
      ['InterpreterMissing', { path: 'notes.txt', language: 'c' }, 'the image has no gcc'],
    ])('says %s for %o', async (name, request, message) => {
      await write('notes.txt', 'some words');
      await write('a.rb', 'puts 1');
      const ran = await run(request);
      expect(ran).toMatchObject({ status: 'failed', stdout: '', stderr: '', error: { name } });
      expect(ran.error?.message).toContain(message);
    });

    it('stops it at its deadline and on an interrupt, and begins the next anew', async () => {
      await write('loop.py', 'import time, os\nos.chdir("/")\nprint("on", flush=True)\ntime.sleep(60)');
      expect(await run({ path: 'loop.py' }, { stdin: null, timeoutMs: 1_500 })).toMatchObject({
        status: 'timeout',
      });
      expect(await run({ path: 'loop.py' }, { stdin: null, interruptAt: 'on' })).toMatchObject({
        status: 'interrupted',
        stateLost: false,
      });
      await write('where.sh', 'pwd');
      expect((await run({ path: 'where.sh' })).stdout).toBe('/workspace\n');
    });

    it('runs beside a shell call', async () => {
      await write(
        'wait.py',
        'import os, time\nopen("/tmp/up", "w").close()\nwhile not os.path.exists("/tmp/seen"): time.sleep(.01)',
      );
      const [ran, seen] = await Promise.all([
        run({ path: 'wait.py' }),
        shell(sandbox, 'until [ -e /tmp/up ]; do sleep .01; done; touch /tmp/seen; echo seen', {
          stdin: null,
        }),
      ]);
      expect([ran.status, seen.stdout]).toEqual(['succeeded', 'seen\n']);
    });
  });
}
