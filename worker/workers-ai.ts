/** What is used of the binding of Workers AI. What it answers is parsed by who asks. */
export interface WorkersAi {
  run(model: string, input: WorkersAiInput): Promise<unknown>;
}

type WorkersAiInput =
  | { text: string[] }
  | { messages: { role: 'system' | 'user'; content: string }[]; max_tokens?: number };
