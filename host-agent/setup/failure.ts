/** A failure whose message is one plain line for the person at the terminal; everything else is a defect. */
export class SetupFailure extends Error {
  override readonly name = 'SetupFailure';
}

/** Runs a command-line entry point: an expected failure prints its one line, a defect prints its stack. */
export async function runMain(main: () => Promise<number>): Promise<void> {
  try {
    process.exitCode = await main();
  } catch (error: unknown) {
    if (error instanceof SetupFailure) console.error(`sandgate: ${error.message}`);
    else console.error(error);
    process.exitCode = 1;
  }
}
