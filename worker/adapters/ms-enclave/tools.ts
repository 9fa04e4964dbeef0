/** ms-enclave's tools, by the names that its clients configure and call, each a call of a built-in tool. */
import * as z from 'zod';
import type { Execution } from '../../../shared/execution.ts';
import { MAX_TIMEOUT_MS } from '../../../shared/limits.ts';
import type { ToolName } from '../../../shared/tool.ts';
import { freshFolder, freshNode, freshPython, freshShell, quoted } from '../fresh-process.ts';
import type { AdapterCall } from '../run-call.ts';

export interface EnclaveTool {
  name: string;
  /** Whoever may call this one may call it. */
  of: ToolName;
  description: string;
  arguments: z.ZodObject;
  /** What to run; text where nothing runs and the text says why. */
  callOf: (args: Record<string, unknown>) => AdapterCall | string;
  /** What a call that succeeded gave; without it, what it printed. */
  output?: ((execution: Execution, args: Record<string, unknown>) => unknown) | undefined;
  /** What is said, as a success, of a file that is not there. */
  absent?: ((args: Record<string, unknown>) => string | undefined) | undefined;
}

function defined<Arguments extends z.ZodObject>(
  tool: Omit<EnclaveTool, 'arguments' | 'callOf' | 'output' | 'absent'> & {
    arguments: Arguments;
    callOf: (args: z.infer<Arguments>) => AdapterCall | string;
    output?: (execution: Execution, args: z.infer<Arguments>) => unknown;
    absent?: (args: z.infer<Arguments>) => string | undefined;
  },
): EnclaveTool {
  const { output, absent } = tool;
  const read = (args: Record<string, unknown>) => tool.arguments.parse(args);
  return {
    ...tool,
    callOf: (args) => tool.callOf(read(args)),
    output: output === undefined ? undefined : (execution, args) => output(execution, read(args)),
    absent: absent === undefined ? undefined : (args) => absent(read(args)),
  };
}

const TimeoutSchema = z.number().positive().optional().describe('Seconds until it is stopped.');
const CodeSchema = z.string().describe('The source.');

function timed(timeoutS: number | null | undefined): { timeoutMs?: number } {
  if (typeof timeoutS !== 'number') return {};
  return { timeoutMs: Math.min(MAX_TIMEOUT_MS, Math.max(1, Math.round(timeoutS * 1_000))) };
}

const pythonExecutor = defined({
  name: 'python_executor',
  of: 'python',
  description: 'Run a Python script in a process of its own.',
  arguments: z.object({ code: CodeSchema, timeout: TimeoutSchema }),
  callOf: ({ code, timeout }) => {
    if (code.trim() === '') return 'No code provided';
    return { name: 'python', arguments: { code: freshPython(code) }, ...timed(timeout) };
  },
});

const notebookExecutor = defined({
  name: 'notebook_executor',
  of: 'python',
  description: 'Run Python in the kernel of the sandbox, whose variables live on.',
  arguments: z.object({ code: CodeSchema, timeout: TimeoutSchema }),
  callOf: ({ code, timeout }) => {
    if (code.trim() === '') return 'No code provided';
    return { name: 'python', arguments: { code }, ...timed(timeout) };
  },
  output: ({ stdout, value }) => `${stdout}${value ?? ''}`,
});

const shellExecutor = defined({
  name: 'shell_executor',
  of: 'shell',
  description: 'Run a shell command in a process of its own.',
  arguments: z.object({
    command: z
      .union([z.string(), z.array(z.string()).max(1_024)])
      .describe('A command line, or a program and its arguments.'),
    timeout: TimeoutSchema,
  }),
  callOf: ({ command, timeout }) => {
    const line = typeof command === 'string' ? command : command.map(quoted).join(' ');
    if (line.trim() === '') return 'No command provided';
    return { name: 'shell', arguments: { command: freshShell(line) }, ...timed(timeout) };
  },
});

const LANGUAGES: Readonly<Record<string, (code: string) => AdapterCall>> = {
  python: (code) => ({ name: 'python', arguments: { code: freshPython(code) } }),
  nodejs: (code) => ({ name: 'node', arguments: { code: freshNode(code) } }),
  js: (code) => ({ name: 'node', arguments: { code: freshNode(code) } }),
  bash: (code) => ({ name: 'shell', arguments: { command: freshShell(code) } }),
};

/** With files beside it a program is a file too, of the name that it has there. */
const MAIN_FILES: Readonly<Record<string, { name: string; command: string }>> = {
  python: { name: 'main.py', command: 'python3 main.py' },
  nodejs: { name: 'main.js', command: 'node main.js' },
  js: { name: 'main.js', command: 'node main.js' },
  bash: { name: 'main.sh', command: 'bash main.sh' },
};

/** Only the last part of a name counts, as there. */
function besideFiles(language: string, code: string, files: Record<string, string>): AdapterCall | string {
  const main = MAIN_FILES[language];
  if (main === undefined) return `Unsupported language: ${language}`;
  const named: Record<string, string> = {};
  for (const [path, content] of Object.entries(files)) {
    const name = path.split('/').at(-1) ?? '';
    if (['', '.', '..'].includes(name)) return `files: ${JSON.stringify(path)} is no name of a file`;
    named[name] = content;
  }
  const command = freshFolder({ ...named, [main.name]: code }, main.command);
  return { name: 'shell', arguments: { command } };
}

const multiCodeExecutor = defined({
  name: 'multi_code_executor',
  of: 'python',
  description: 'Run a program in python, nodejs or bash in a process of its own.',
  arguments: z.object({
    language: z.string().describe(`One of ${Object.keys(LANGUAGES).join(', ')}.`),
    code: CodeSchema,
    files: z
      .record(z.string(), z.string())
      .optional()
      .describe('Files beside the program, which then has a folder of its own: text by name.'),
    compile_timeout: TimeoutSchema,
    run_timeout: TimeoutSchema,
  }),
  callOf: ({ language, code, files, run_timeout }) => {
    if (code.trim() === '') return 'Invalid input';
    const of = Object.hasOwn(LANGUAGES, language) ? LANGUAGES[language] : undefined;
    if (of === undefined)
      return `Unsupported language: ${language}; ${Object.keys(LANGUAGES).join(', ')} are there`;
    if (files === undefined || Object.keys(files).length === 0) return { ...of(code), ...timed(run_timeout) };
    const call = besideFiles(language, code, files);
    return typeof call === 'string' ? call : { ...call, ...timed(run_timeout) };
  },
});

const FileAnswerSchema = z.looseObject({
  content: z.string().optional(),
  entries: z
    .array(z.looseObject({ name: z.string().optional(), type: z.string(), size: z.int() }))
    .optional(),
});

const fileOperation = defined({
  name: 'file_operation',
  of: 'file',
  description: 'Create, read, write, delete or list files of the sandbox, or ask whether one exists.',
  arguments: z.object({
    operation: z.enum(['create', 'read', 'write', 'delete', 'list', 'exists']),
    file_path: z.string().describe('The file or folder.'),
    content: z.string().optional().describe('What to write.'),
    encoding: z.string().optional().describe('utf-8, which it is anyway.'),
  }),
  callOf: ({ operation, file_path, content, encoding }) => {
    if (file_path.trim() === '') return 'No file path provided';
    if (!/^utf-?8$/i.test(encoding ?? 'utf-8')) return `Unsupported encoding: ${encoding}`;
    if (operation === 'write' && (content ?? null) === null) return 'Content is required for write operation';
    const path = sandboxPath(file_path);
    const common = { path, operation: OPERATIONS[operation] };
    if (operation === 'write' || operation === 'create') {
      return { name: 'file', arguments: { ...common, content: content ?? '' } };
    }
    return { name: 'file', arguments: { ...common, ...(operation === 'delete' ? { recursive: true } : {}) } };
  },
  output: ({ structured }, { operation, file_path }) => {
    const answer = FileAnswerSchema.safeParse(structured);
    switch (operation) {
      case 'read':
        return answer.data?.content ?? '';
      case 'list':
        return (answer.data?.entries ?? [])
          .map(
            ({ name, type, size }) =>
              `${type === 'directory' ? 'd' : '-'} ${String(size).padStart(10)} ${name ?? '?'}\n`,
          )
          .join('');
      case 'exists':
        return 'exists';
      case 'delete':
        return `Successfully deleted: ${file_path}`;
      case 'write':
      case 'create':
        return `Successfully wrote to: ${file_path}`;
    }
  },
  absent: ({ operation, file_path }) => {
    if (operation === 'exists') return 'does not exist';
    return operation === 'delete' ? `Successfully deleted: ${file_path}` : undefined;
  },
});

const OPERATIONS = {
  create: 'write',
  read: 'read',
  write: 'write',
  delete: 'delete',
  list: 'list',
  exists: 'stat',
} as const;

const THEIR_FOLDER = '/sandbox';

/** Their sandboxes work in `/sandbox`, ours in the workspace: a path there is one here. */
export function sandboxPath(path: string): string {
  if (path === THEIR_FOLDER || path === `${THEIR_FOLDER}/`) return '.';
  return path.startsWith(`${THEIR_FOLDER}/`) ? path.slice(THEIR_FOLDER.length + 1) : path;
}

export const ENCLAVE_TOOLS: readonly EnclaveTool[] = [
  pythonExecutor,
  notebookExecutor,
  shellExecutor,
  fileOperation,
  multiCodeExecutor,
];
