/** Prints what set-up is doing and how long each step took. */

export type Progress = {
  /** Runs one step; `detail` shows what the step is busy with on a terminal, and is silent in a log. */
  step<T>(name: string, work: (detail: (text: string) => void) => Promise<Outcome<T>>): Promise<T>;
};

/** What a step gives back: its value, and a word on what it did ("cached", "built 214 MB"). */
export type Outcome<T> = { value: T; did: string };

const CLEAR_LINE = '\r\u001b[2K';

/** On a terminal the running step is one line that changes; in a log each step is one line when it ends. */
export function terminalProgress(output: NodeJS.WriteStream): Progress {
  return {
    async step(name, work) {
      const startedAtMs = performance.now();
      const elapsed = (): string => `${((performance.now() - startedAtMs) / 1000).toFixed(1)} s`;
      let text = '';
      const width = Math.max(40, output.columns || 80);
      const draw = (): void => {
        output.write(`${CLEAR_LINE}${`  ${name} … ${elapsed()}  ${text}`.slice(0, width - 1)}`);
      };
      const timer = output.isTTY ? setInterval(draw, 250) : undefined;
      try {
        const outcome = await work((detail) => {
          text = detail;
        });
        output.write(`${output.isTTY ? CLEAR_LINE : ''}  ${name} … ${elapsed()}  ${outcome.did}\n`);
        return outcome.value;
      } catch (error: unknown) {
        output.write(`${output.isTTY ? CLEAR_LINE : ''}  ${name} … ${elapsed()}  failed\n`);
        throw error;
      } finally {
        clearInterval(timer);
      }
    },
  };
}

/** For callers that only want to hear of failures, such as tests. */
export const silentProgress: Progress = {
  step: async (_name, work) => (await work(() => {})).value,
};
