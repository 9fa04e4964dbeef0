/** What the edge is told of the state that a shell was left in. */
import {
  MAX_STANDING_ENVIRONMENT_BYTES,
  MAX_WORKING_DIRECTORY_CHARACTERS,
  type ShellStanding,
} from '../../../shared/shell-standing.ts';
import type { ShellState } from '../../guest-link/shell.ts';

const NAME = /^[A-Za-z_][A-Za-z0-9_]{0,127}$/;
/** They follow from the folder. */
const OF_FOLDER: ReadonlySet<string> = new Set(['PWD', 'OLDPWD']);

/** `began`: what the sandbox began with. */
export function shellStanding(now: ShellState, began: ShellState): ShellStanding {
  const folder = Buffer.from(now.cwd).toString();
  return {
    working_directory: folder.slice(0, MAX_WORKING_DIRECTORY_CHARACTERS),
    environment: changedVariables(variablesOf(now), variablesOf(began)),
  };
}

/** Null where it is more than is told. */
function changedVariables(
  now: ReadonlyMap<string, string>,
  began: ReadonlyMap<string, string>,
): ShellStanding['environment'] {
  const changed: Record<string, string | null> = {};
  for (const [name, value] of now) if (began.get(name) !== value) changed[name] = value;
  for (const name of began.keys()) if (!now.has(name)) changed[name] = null;
  return Buffer.byteLength(JSON.stringify(changed)) <= MAX_STANDING_ENVIRONMENT_BYTES ? changed : null;
}

/** A guest writes them: what is no name of a variable, as those that bash gives to functions, is left out. */
function variablesOf({ environment }: ShellState): Map<string, string> {
  const variables = new Map<string, string>();
  for (const text of Buffer.from(environment).toString().split('\0')) {
    const equals = text.indexOf('=');
    const name = text.slice(0, Math.max(0, equals));
    if (NAME.test(name) && !OF_FOLDER.has(name)) variables.set(name, text.slice(equals + 1));
  }
  return variables;
}
