/** A failure whose message is one plain line for the person at the terminal; everything else is a defect. */
export class SetupFailure extends Error {
  override readonly name = 'SetupFailure';
}

/** Runs a command-line entry point: an expected failure prints its one line, a defect prints its stack. */
export async function runMain(main: () => Promise<number>): Promise<void> {
  try {
    process.exitCode = await main();
  } catch (error: unknown) {
    const line = error instanceof SetupFailure ? error.message : wrongArguments(error);
    if (line !== undefined) console.error(`sandgate: ${line}`);
    else console.error(error);
    process.exitCode = 1;
  }
}

/** What `parseArgs` says of a word that no option has; behind its first sentence comes advice for programmers. */
function wrongArguments(error: unknown): string | undefined {
  if (!(error instanceof TypeError) || !('code' in error)) return undefined;
  const isTyped = typeof error.code === 'string' && error.code.startsWith('ERR_PARSE_ARGS_');
  return isTyped ? error.message.split(/\. |\n/)[0] : undefined;
}
