/** What a subcommand is to the command line. */
import type { ParseArgsOptionsConfig } from 'node:util';
import type { Layout } from './layout.ts';

export interface Invocation {
  layout: Layout;
  positionals: readonly string[];
  flag: (name: string) => boolean;
  text: (name: string) => string | undefined;
}

export interface Subcommand {
  summary: string;
  /** What follows the name in the usage line. */
  usage: string;
  options: ParseArgsOptionsConfig;
  /** Least and most positional arguments. */
  positionals: readonly [number, number];
  /** Gives the exit code. */
  run(invocation: Invocation): Promise<number>;
}
