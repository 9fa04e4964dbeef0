/** What the model is asked, and what is read of its answer. Pure. */
import * as z from 'zod';
import type { CreateRepairRun } from '../../shared/repair.ts';

const LANGUAGES = { python: 'Python', node: 'JavaScript (Node.js)' } as const;

export interface Failed {
  code: string;
  lines: string;
}

/** The body of a chat completion. */
export interface Question {
  model: string;
  messages: { role: 'system' | 'user'; content: string }[];
  max_tokens?: number;
}

export function requestBody(
  { language, task, model }: Omit<CreateRepairRun, 'callback'>,
  failed: readonly Failed[],
): Question {
  const last = failed.at(-1);
  const parts = [
    ...(task === undefined ? [] : [`The task:\n${task}`]),
    ...failed
      .slice(0, -1)
      .map(
        ({ code, lines }, index) => `Attempt ${index + 1}:\n${fenced(code)}\nIt failed:\n${fenced(lines)}`,
      ),
    `The code:\n${fenced(last?.code ?? '')}\nIt failed:\n${fenced(last?.lines ?? '')}`,
  ];
  const system = [
    `You mend ${LANGUAGES[language]} code that failed in a notebook cell.`,
    'Answer with the whole mended code in one fenced block, and nothing that was tried before.',
    'What the failed attempt did to files and variables has been undone.',
    'If it cannot be mended by changing the code, say why and give no code.',
  ].join(' ');
  return {
    model: model.name,
    messages: [
      { role: 'system', content: system },
      { role: 'user', content: parts.join('\n\n') },
    ],
    ...(model.max_tokens === undefined ? {} : { max_tokens: model.max_tokens }),
  };
}

/** A fence longer than any in the text, so that nothing in it ends the block. */
function fenced(text: string): string {
  const longest = Math.max(2, ...[...text.matchAll(/`+/g)].map(([ticks]) => ticks.length));
  const fence = '`'.repeat(longest + 1);
  return `${fence}\n${text}\n${fence}`;
}

const CompletionSchema = z.object({
  choices: z.array(z.object({ message: z.object({ content: z.string().nullable() }) })).min(1),
});

/** The text of a chat completion; `undefined` for an answer that is none. */
export function answerText(structured: unknown): string | undefined {
  const parsed = CompletionSchema.safeParse(structured);
  return parsed.success ? (parsed.data.choices[0]?.message.content ?? '') : undefined;
}
