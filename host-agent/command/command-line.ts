/** `sandgate-host`: reads the command line, runs one subcommand, and turns every failure into one line. */
import { parseArgs } from 'node:util';
import { SetupFailure } from '../setup/failure.ts';
import { doctor } from './doctor.ts';
import { drain, resume } from './drain.ts';
import { enroll } from './enroll.ts';
import { CommandFailure, EXIT_FAILED, wrongUse } from './failure.ts';
import { images } from './images.ts';
import { install } from './install.ts';
import { layoutOf } from './layout.ts';
import { status } from './status.ts';
import type { Subcommand } from './subcommand.ts';
import { uninstall } from './uninstall.ts';

const PROGRAM = 'sandgate-host';
const SUBCOMMANDS = new Map<string, Subcommand>(
  Object.entries({ install, enroll, status, doctor, images, drain, resume, uninstall }),
);
const COMMON_OPTIONS = {
  root: { type: 'string', default: '/' },
  help: { type: 'boolean', short: 'h', default: false },
} as const;

export async function runCommandLine(argv: readonly string[]): Promise<number> {
  try {
    return await dispatch(argv);
  } catch (error: unknown) {
    if (error instanceof CommandFailure) return fail(error.message, error.exitCode);
    if (error instanceof SetupFailure) return fail(error.message, EXIT_FAILED);
    if (isSystemError(error)) return fail(error.message, EXIT_FAILED);
    throw error;
  }
}

async function dispatch([name, ...rest]: readonly string[]): Promise<number> {
  if (name === undefined || name === 'help' || name === '--help' || name === '-h') {
    console.log(overview());
    return name === undefined ? wrongUse('').exitCode : 0;
  }
  const subcommand = SUBCOMMANDS.get(name);
  if (subcommand === undefined) {
    throw wrongUse(`there is no ${name}; it is one of ${[...SUBCOMMANDS.keys()].join(', ')}`);
  }
  const { values, positionals } = parse(name, subcommand, rest);
  if (values.help === true) {
    console.log(`${PROGRAM} ${name} ${subcommand.usage}\n\n${subcommand.summary}`);
    return 0;
  }
  const [least, most] = subcommand.positionals;
  if (positionals.length < least || positionals.length > most) {
    throw wrongUse(`usage: ${PROGRAM} ${name} ${subcommand.usage}`);
  }
  return subcommand.run({
    layout: layoutOf(String(values.root)),
    positionals,
    flag: (option) => values[option] === true,
    text: (option) => {
      const value = values[option];
      return typeof value === 'string' ? value : undefined;
    },
  });
}

interface Parsed {
  values: Readonly<Record<string, string | boolean | (string | boolean)[] | undefined>>;
  positionals: string[];
}

function parse(name: string, { options }: Subcommand, args: string[]): Parsed {
  try {
    return parseArgs({
      args,
      options: { ...COMMON_OPTIONS, ...options },
      allowPositionals: true,
      strict: true,
    });
  } catch (error: unknown) {
    // What it says after the first sentence is advice for programmers.
    const message = error instanceof Error ? (error.message.split(/\. |\n/)[0] ?? '') : 'wrong arguments';
    throw wrongUse(`${message} (${PROGRAM} ${name} --help)`);
  }
}

function overview(): string {
  const lines = [...SUBCOMMANDS].map(([name, { usage, summary }]) => `  ${name} ${usage}\n      ${summary}`);
  return `${PROGRAM} <subcommand>\n\n${lines.join('\n')}\n\n  --root DIR  the root of the machine meant; normally /`;
}

function fail(message: string, exitCode: number): number {
  if (message !== '') console.error(`${PROGRAM}: ${message.split('\n')[0]}`);
  return exitCode;
}

/** No permission, no space, and the like: their message names the file. */
function isSystemError(error: unknown): error is Error {
  return error instanceof Error && 'syscall' in error;
}
