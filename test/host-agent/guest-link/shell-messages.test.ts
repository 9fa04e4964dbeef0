import { expect, it } from 'vitest';
import { lengthPrefixed } from '../../../host-agent/guest-link/length-prefixed.ts';
import {
  encodeShellRequest,
  localeVariables,
  parseShellState,
  ShellMessages,
  shellState,
} from '../../../host-agent/guest-link/shell-messages.ts';

const BEFORE = shellState('/before', ['A=1', 'B=']);
const state = (variables: string, kind = 1) => Buffer.from(`${String.fromCharCode(kind)}/now\0${variables}`);

it('takes the folder and the variables of a whole state', () => {
  const parsed = parseShellState(state('X=1\0Y=a=b\0'), BEFORE);
  expect(parsed).toEqual({
    cwd: Uint8Array.from(Buffer.from('/now')),
    environment: Buffer.from('X=1\0Y=a=b\0'),
  });
  const body = encodeShellRequest(parsed ?? BEFORE, '/home', 'true');
  expect(body).toEqual({
    ok: true,
    value: lengthPrefixed(Buffer.from('\0\0\0\x02/now\0/home\0true\0X=1\0Y=a=b\0')),
  });
});

it.each([
  ['nothing but NULs', '\0'.repeat(1_000_000)],
  ['more variables than are kept', 'A=\0'.repeat(4097)],
  ['a variable without a value', 'A=1\0B\0C=1\0'],
  ['a variable without a name', '=1\0'],
  ['a variable without its end', 'A=1\0B=2'],
])('keeps the variables from before for %s, and the new folder', (_what, variables) => {
  expect(parseShellState(state(variables), BEFORE)?.environment).toBe(BEFORE.environment);
  expect(Buffer.from(parseShellState(state(variables), BEFORE)?.cwd ?? []).toString()).toBe('/now');
});

it('takes as many variables as are kept', () => {
  const variables = 'A=\0'.repeat(4096);
  expect(parseShellState(state(variables), BEFORE)?.environment).toEqual(Buffer.from(variables));
});

it('keeps the variables from before where only the folder was sent', () => {
  expect(parseShellState(state('X=1\0', 0), BEFORE)?.environment).toBe(BEFORE.environment);
});

it('finds the variables that choose the locale', () => {
  const variables = ['A=1', 'LANG=C.UTF-8', 'LANGUAGE=de', 'LC_ALL=', 'XLC_ALL=C', 'LC_CTYPE=a\xff'];
  const found = localeVariables(shellState('/', variables)).map((variable) =>
    Buffer.from(variable).toString(),
  );
  expect(found).toEqual(['LANG=C.UTF-8', 'LC_ALL=', 'LC_CTYPE=a\xff']);
});

it('listens to no more messages than a shell has to say', () => {
  const messages = new ShellMessages();
  let heard = 0;
  messages.onMessage = () => heard++;
  for (let count = 0; count < 1_000; count++) messages.push(lengthPrefixed(state('A=1\0')));
  expect(heard).toBe(64);
});
