/** The built-in tools: their names, versions and the schemas of their arguments. */
import * as z from 'zod';
import { MAX_ARGUMENTS_BYTES } from './limits.ts';
import { RunLanguageSchema } from './run-languages.ts';
import type { Scope } from './scopes.ts';

export const PythonArgumentsSchema = z.strictObject({
  code: z.string().max(MAX_ARGUMENTS_BYTES).describe('Python source. The last expression becomes `value`.'),
});

export const NodeArgumentsSchema = z.strictObject({
  code: z
    .string()
    .max(MAX_ARGUMENTS_BYTES)
    .describe('JavaScript source, run by Node.js. The last expression becomes `value`.'),
});

export const ShellArgumentsSchema = z.strictObject({
  command: z.string().max(MAX_ARGUMENTS_BYTES).describe('A bash command line or script.'),
});

const Path = z
  .string()
  .min(1)
  .max(4096)
  .refine((path) => !path.includes('\0'), 'a path without NUL bytes')
  .describe('Absolute, or relative to the workspace.');
const Encoding = z.enum(['utf-8', 'base64']);

export const FileArgumentsSchema = z.discriminatedUnion('operation', [
  z.strictObject({
    operation: z.literal('read'),
    path: Path,
    encoding: Encoding.optional().describe('Default: utf-8 where the content is UTF-8, else base64.'),
    offset: z.int().min(0).optional(),
    length: z.int().min(1).optional(),
  }),
  z.strictObject({
    operation: z.literal('write'),
    path: Path,
    content: z.string().max(MAX_ARGUMENTS_BYTES),
    encoding: Encoding.default('utf-8'),
    mode: z.int().min(0).max(0o777).optional(),
  }),
  z.strictObject({ operation: z.literal('list'), path: Path, cursor: z.string().max(1024).optional() }),
  z.strictObject({ operation: z.literal('delete'), path: Path, recursive: z.boolean().default(false) }),
  z.strictObject({ operation: z.literal('move'), path: Path, destination: Path }),
  z.strictObject({ operation: z.literal('stat'), path: Path }),
]);
export type FileArguments = z.infer<typeof FileArgumentsSchema>;

const ProgramArgument = z
  .string()
  .max(65_536)
  .refine((text) => !text.includes('\0'), 'an argument without NUL bytes');

export const RunArgumentsSchema = z.strictObject({
  path: Path,
  args: z.array(ProgramArgument).max(1_024).default([]).describe('Arguments of the program.'),
  stdin: z.string().max(MAX_ARGUMENTS_BYTES).optional().describe('Standard input, then its end.'),
  language: RunLanguageSchema.optional().describe('Default: by the extension, else by the first line.'),
});
export type RunArguments = z.infer<typeof RunArgumentsSchema>;

export interface BuiltInTool {
  version: string;
  description: string;
  scope: Scope;
  arguments: z.ZodType;
}

export const BUILT_IN_TOOLS = {
  python: {
    version: '1',
    description:
      'Run Python in the kernel of the session. Variables, imports and functions live on; top-level await works. Figures and `display(...)` become results.',
    scope: 'tools:python',
    arguments: PythonArgumentsSchema,
  },
  node: {
    version: '1',
    description:
      'Run JavaScript in the Node.js kernel of the session. Variables, imports and functions live on; top-level await works.',
    scope: 'tools:node',
    arguments: NodeArgumentsSchema,
  },
  shell: {
    version: '1',
    description: 'Run a bash command. The working directory and exported variables live on in the session.',
    scope: 'tools:shell',
    arguments: ShellArgumentsSchema,
  },
  file: {
    version: '1',
    description: 'Read, write, list, delete, move or stat files of the session. Bytes are kept as they are.',
    scope: 'tools:file',
    arguments: FileArgumentsSchema,
  },
  run: {
    version: '1',
    description:
      'Run a program from a file of the session, in any language that the image has; compiled languages are built first.',
    scope: 'tools:shell',
    arguments: RunArgumentsSchema,
  },
} as const satisfies Record<string, BuiltInTool>;

export const ToolNameSchema = z.enum(['python', 'node', 'shell', 'file', 'run']);
export type ToolName = z.infer<typeof ToolNameSchema>;
