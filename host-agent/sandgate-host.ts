#!/usr/bin/env node
/** Entry of the operator's command. */
import { runCommandLine } from './command/command-line.ts';

process.exitCode = await runCommandLine(process.argv.slice(2));
