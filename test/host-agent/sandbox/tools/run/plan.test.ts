import { describe, expect, it } from 'vitest';
import { type Probe, parseProbe, planRun } from '../../../../../host-agent/sandbox/tools/run/plan.ts';
import { RunArgumentsSchema } from '../../../../../shared/tool.ts';

const PROBE: Probe = {
  found: 'file',
  programs: ['python3', 'node', 'gcc', 'bash', 'perl'],
  isExecutable: false,
  firstLine: '',
};

function plan(given: object, probe: Partial<Probe> = {}) {
  return planRun(RunArgumentsSchema.parse(given), { ...PROBE, ...probe });
}

describe('the plan of a run', () => {
  it.each([
    ['a.py', '', 'program=python3\nexec "$program"  "$file" "$@"'],
    ['dir.d/a.PY', '', 'program=python3'],
    ['tool', '#!/usr/bin/python3 -u', 'program=python3'],
    ['tool', '#!/usr/bin/env python3.11', 'program=python3'],
    ['tool', '#! /usr/bin/env -S node --flag', 'program=node'],
    ['a.py', '#!/bin/sh', 'program=python3'],
    ['.bashrc', '#!/bin/bash', 'program=bash'],
    ['a.c', '', 'program=gcc'],
  ])('of %s with the first line %o', (path, firstLine, command) => {
    expect(plan({ path }, { firstLine })).toMatchObject({
      ok: true,
      command: expect.stringContaining(command),
    });
  });

  it('keeps names and arguments from the shell', () => {
    const planned = plan({ path: "a'b.py", args: ["$(x) 'y'", '-n'] });
    expect(planned.ok && planned.command).toContain(`file='./a'\\''b.py'\nset -- '$(x) '\\''y'\\''' '-n'\n`);
  });

  it('builds a compiled language and then becomes the program', () => {
    const planned = plan({ path: '/workspace/a.c' });
    expect(planned.ok && planned.command.split('\n').slice(-2)).toEqual([
      '"$program" -O1 -pthread -x c -o "$out" "$file" -lm || { code=$?; echo "C: the build failed" >&2; exit "$code"; }',
      'exec "$out" "$@"',
    ]);
  });

  it('takes the language that was asked for', () => {
    expect(plan({ path: 'a.txt', language: 'perl' })).toMatchObject({
      ok: true,
      command: expect.stringContaining('program=perl'),
    });
  });

  it('says what the image can run where it cannot run this', () => {
    expect(plan({ path: 'a.go' })).toMatchObject({
      ok: false,
      end: {
        error: {
          name: 'InterpreterMissing',
          message: 'the image has no go to run Go with; it can run python, javascript, shell, c, perl',
        },
      },
    });
  });
});

describe('what a sandbox says of a file', () => {
  it('is read as it was written', () => {
    expect(parseProbe('file\nx\npython3 bash evil \n#!/bin/sh\n')).toEqual({
      found: 'file',
      isExecutable: true,
      programs: ['python3', 'bash'],
      firstLine: '#!/bin/sh',
    });
    expect(parseProbe('missing\n')?.found).toBe('missing');
  });

  it.each(['', 'nonsense\n', 'file\nx\n'])('is nothing where it is %o', (output) => {
    expect(parseProbe(output)).toBeUndefined();
  });
});
