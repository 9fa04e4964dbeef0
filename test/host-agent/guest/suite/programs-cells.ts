/** Programs under test: cells whose calls the test answers. */
import type { Kernel } from '../../../../host-agent/guest-link/kernel.ts';
import type { CallAnswer, ProgramTool } from '../../../../shared/code-mode.ts';
import { eventually, must, Output } from '../guest-under-test.ts';

export interface SeenCall {
  call: number;
  name: string;
  arguments: unknown;
}

/** Answers a call at once; undefined leaves it waiting. */
export type Answerer = (call: SeenCall) => Omit<CallAnswer, 'call'> | undefined;

export function tool(name: string, more: Partial<ProgramTool> = {}): ProgramTool {
  return {
    name,
    path: name.split('.'),
    documentation: `Does ${name}.`,
    parameters: [
      { name: 'city', type: 'str', required: true },
      { name: 'days', type: 'int | None', required: false },
    ],
    returns: 'Any',
    ...more,
  };
}

export function programsOf(kernel: () => Kernel) {
  const begin = (
    code: string,
    { tools = [tool('weather.get')], answer = () => undefined, arguments: given }: ProgramOptions = {},
  ) => {
    const output = new Output();
    const calls: SeenCall[] = [];
    const waits: boolean[] = [];
    const answerCall = (one: CallAnswer) => kernel().answer(one);
    const ended = kernel().execute({
      code,
      onOutput: output.sink,
      program: {
        tools,
        arguments: given,
        onCall: ({ call, name, arguments: text }) => {
          const seen = { call, name, arguments: JSON.parse(text) };
          calls.push(seen);
          const given = answer(seen);
          if (given !== undefined) void answerCall({ call, ...given } as CallAnswer);
        },
        onWaiting: (rests) => waits.push(rests),
      },
    });
    return {
      output,
      calls,
      waits,
      ended,
      answer: answerCall,
      called: (count: number) => eventually(`${count} calls`, () => calls.length >= count),
    };
  };
  const run = async (code: string, options: ProgramOptions = {}) => {
    const begun = begin(code, options);
    const outcome = must(await begun.ended);
    return { ...outcome, ...begun, stdout: begun.output.text(), stderr: begun.output.text('stderr') };
  };
  return { begin, run };
}

interface ProgramOptions {
  tools?: ProgramTool[];
  answer?: Answerer;
  arguments?: Record<string, unknown>;
}
