import { describe, expect, test } from 'vitest';
import { shellState } from '../../../../host-agent/guest-link/shell.ts';
import { shellStanding } from '../../../../host-agent/sandbox/tools/shell-standing.ts';
import { MAX_STANDING_ENVIRONMENT_BYTES, ShellStandingSchema } from '../../../../shared/shell-standing.ts';

const began = shellState('/workspace', ['PATH=/bin', 'GREETING=hello', 'PWD=/workspace']);

describe('where a shell stands', () => {
  test('is its folder, and the variables that are not as they began', () => {
    const now = shellState('/tmp/a b', [
      'PATH=/bin',
      'PWD=/tmp/a b',
      'OLDPWD=/workspace',
      'NEW==x=\n',
      'EMPTY=',
    ]);
    expect(shellStanding(now, began)).toEqual({
      working_directory: '/tmp/a b',
      environment: { NEW: '=x=\n', EMPTY: '', GREETING: null },
    });
  });

  test('leaves out what is no name of a variable', () => {
    const now = shellState('/', [
      'PATH=/bin',
      'GREETING=hello',
      'BASH_FUNC_f%%=() { :; }',
      `${'n'.repeat(129)}=1`,
    ]);
    expect(shellStanding(now, began).environment).toEqual({});
  });

  test.each([
    ['a value', [`BIG=${'x'.repeat(MAX_STANDING_ENVIRONMENT_BYTES)}`]],
    ['what UTF-8 makes long', [`BIG=${'字'.repeat(MAX_STANDING_ENVIRONMENT_BYTES / 2)}`]],
    ['many variables', Array.from({ length: 4_000 }, (_, n) => `N${n}=1`)],
    ['what JSON makes long', [`BIG=${'\u0001'.repeat(MAX_STANDING_ENVIRONMENT_BYTES / 4)}`]],
  ])(
    'says no variables where %s would be too much, and what it says is always taken',
    (_name, environment) => {
      const standing = shellStanding(shellState(`/${'d'.repeat(5_000)}`, environment), began);
      expect(standing.environment).toBeNull();
      expect(ShellStandingSchema.safeParse(standing).success).toBe(true);
    },
  );

  test('is text also where names are not', () => {
    const now = { cwd: Buffer.from([0x2f, 0xff]), environment: Buffer.from([0x41, 0x3d, 0xff, 0]) };
    expect(shellStanding(now, shellState('/', []))).toEqual({
      working_directory: '/\ufffd',
      environment: { A: '\ufffd' },
    });
  });
});
