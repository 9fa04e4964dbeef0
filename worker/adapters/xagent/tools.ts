/** XAgent's own tools, by the names that its prompts and its clients use, each a call or two of a built-in one. */
import * as z from 'zod';
import type { Execution } from '../../../shared/execution.ts';
import type { ToolName } from '../../../shared/tool.ts';
import type { OwnSession } from '../../calls/own-session.ts';
import { invalid } from '../../middleware/body.ts';
import { reply } from '../../routing/reply.ts';
import type { Exchange } from '../../routing/route.ts';
import { detailReply } from '../adapter-route.ts';
import { runCall } from '../run-call.ts';
import { editedText, numberedLines } from './lines.ts';
import { nodeExecution } from './node.ts';
import { failedReply, textAndImages } from './response.ts';
import { callShell, displayOf, SHELL_TOOL } from './shells.ts';
import { browse, PageUrlSchema, SEARCH_TOOL, searchAndBrowse } from './web.ts';
import { treeText, WORKSPACE_NAME, workspaceTree } from './workspace.ts';

export interface XAgentPlace {
  exchange: Exchange<'tenant'>;
  session: OwnSession;
}

export interface XAgentTool {
  name: string;
  environment: string | null;
  /** Whoever may call this one may call it. */
  of: ToolName;
  description: string;
  arguments: z.ZodObject;
  /** Arguments that their clients may send and that no model needs to know. */
  unlisted?: readonly string[];
  run: (place: XAgentPlace, args: Record<string, unknown>) => Promise<Response>;
}

/** Its tools are shown where the session has a network. */
export const WEB_ENVIRONMENT = 'WebEnv';
const FAILED = 500;
/** As long as their shell and their notebook give a call. */
const TIMEOUT_MS = 300_000;

function defined<Arguments extends z.ZodObject>(
  tool: Omit<XAgentTool, 'arguments' | 'run'> & {
    arguments: Arguments;
    run: (place: XAgentPlace, args: z.infer<Arguments>) => Promise<Response>;
  },
): XAgentTool {
  return { ...tool, run: (place, args) => tool.run(place, tool.arguments.parse(args)) };
}

async function called(
  { exchange, session }: XAgentPlace,
  tool: ToolName,
  args: Record<string, unknown>,
): Promise<Execution> {
  return nodeExecution(
    exchange,
    await runCall(exchange, session, { name: tool, arguments: args, timeoutMs: TIMEOUT_MS }),
  );
}

const executeCell = defined({
  name: 'PythonNotebook_execute_cell',
  environment: 'PythonNotebook',
  of: 'python',
  description:
    'Run Python in the notebook of the session and get its output. Variables and imports live on from cell to cell.',
  arguments: z.object({
    code: z.string().describe('Python source; no shell commands.'),
    cell_index: z.unknown().optional(),
    reset: z.unknown().optional(),
  }),
  // Each call is a new cell, and the kernel goes on.
  unlisted: ['cell_index', 'reset'],
  run: async (place, { code }) => {
    const execution = await called(place, 'python', { code });
    return failedReply(execution) ?? reply(200, textAndImages(execution));
  },
});

const shellCommand = defined({
  name: SHELL_TOOL,
  environment: null,
  of: 'shell',
  description:
    'Run a shell command and get its exit code and output. The working directory lives on between calls. What takes long is run with run_async=true in a shell of its own: the answer has its shell_id and what it wrote so far. Call again with the shell_id to give it more commands (run_async=true), to wait for its end and exit code, or to end it (kill=true).',
  arguments: z.object({
    command: z.string().default('').describe('The command; it gets no input.'),
    run_async: z.boolean().optional().describe('Whether it goes on after this call, in a shell of its own.'),
    shell_id: z.int().optional().describe('A shell that an earlier call began.'),
    kill: z.boolean().optional().describe('Whether the shell ends with this call.'),
  }),
  run: async (place, { command, run_async, shell_id, kill }) => {
    if (run_async === true || shell_id !== undefined) {
      const call = { command, runAsync: run_async === true, shellId: shell_id, kill: kill === true };
      return callShell(place.session, call);
    }
    if (command === '') throw invalid([{ path: 'body.arguments.command', expected: 'a command' }]);
    const execution = await called(place, 'shell', { command });
    const { exit_code, status } = execution;
    const answer = { ReturnCode: exit_code, display: displayOf(execution) };
    if (status === 'succeeded') return reply(200, { type: 'simple', data: answer });
    if (status === 'failed' && exit_code !== null) return detailReply(FAILED, answer);
    return failedReply(execution) ?? detailReply(FAILED, answer);
  },
});

const FileReadSchema = z.object({
  content: z.string(),
  encoding: z.literal('utf-8'),
  truncated: z.boolean(),
});

/** The text of a file, null where there is none. */
async function textOf(place: XAgentPlace, path: string): Promise<string | null | Response> {
  const execution = await called(place, 'file', { operation: 'read', path, encoding: 'utf-8' });
  if (execution.error?.name === 'FileNotFound') return null;
  const failed = failedReply(execution);
  if (failed !== undefined) return failed;
  const read = FileReadSchema.parse(execution.structured);
  return read.truncated
    ? detailReply(FAILED, `File ${path} is too large to be read by lines.`)
    : read.content;
}

function notInWorkspace(path: string): Response {
  return detailReply(FAILED, `File ${path} not found in workspace.`);
}

const readFromFile = defined({
  name: 'FileSystemEnv_read_from_file',
  environment: 'FileSystemEnv',
  of: 'file',
  description: 'Read a text file of the workspace, with a number before each line.',
  arguments: z.object({
    filepath: z.string().min(1).describe('Path from the root of the workspace.'),
    line_number: z
      .int()
      .optional()
      .describe('The first line to show, 1 by default; a negative one counts from the end.'),
  }),
  run: async (place, { filepath, line_number }) => {
    const path = workspacePath(filepath);
    const text = await textOf(place, path);
    if (text === null) return notInWorkspace(filepath);
    return text instanceof Response ? text : reply(200, numberedLines(text, line_number ?? 1));
  },
});

const writeToFile = defined({
  name: 'FileSystemEnv_write_to_file',
  environment: 'FileSystemEnv',
  of: 'file',
  description:
    'Write lines of a text file in the workspace, made where it is missing, and get it back with a number before each line.',
  arguments: z.object({
    filepath: z.string().min(1).describe('Path from the root of the workspace.'),
    content: z.string().describe('The lines to write.'),
    truncating: z.boolean().optional().describe('Whether what the file had is dropped.'),
    line_number: z.int().optional().describe('Where they go; at the end without it.'),
    overwrite: z.boolean().optional().describe('Whether they take the place of as many lines from there on.'),
  }),
  run: async (place, { filepath, content, truncating, line_number, overwrite }) => {
    const path = workspacePath(filepath);
    const old = truncating === true ? '' : await textOf(place, path);
    if (old instanceof Response) return old;
    const edited = editedText(old ?? '', content, {
      line: line_number ?? null,
      overwrite: overwrite === true,
    });
    const written = await called(place, 'file', { operation: 'write', path, content: edited });
    return failedReply(written) ?? reply(200, numberedLines(edited, 1));
  },
});

const printTree = defined({
  name: 'FileSystemEnv_print_filesys_struture',
  environment: 'FileSystemEnv',
  of: 'file',
  description: 'The folders and files of the workspace as a tree.',
  arguments: z.object({
    return_root: z.boolean().optional().describe('Whether the path of the workspace stands first.'),
  }),
  run: async ({ session }, { return_root }) => {
    const head = return_root === true ? `Global Root Work Directory: /${WORKSPACE_NAME}\n` : '';
    return reply(200, `${head}${treeText(await workspaceTree(session))}`);
  },
});

const GoalsSchema = z.string().optional().describe('What to look for; the text of the page is given whole.');

const browseWebsite = defined({
  name: 'WebEnv_browse_website',
  environment: WEB_ENVIRONMENT,
  of: 'python',
  description: 'The text and the links of a web page that the network of the session reaches.',
  arguments: z.object({ url: PageUrlSchema.describe('http or https.'), goals_to_browse: GoalsSchema }),
  run: (place, { url }) => browse(place, url),
});

const searchWeb = defined({
  name: 'WebEnv_search_and_browse',
  environment: WEB_ENVIRONMENT,
  of: 'python',
  description: `Search by the tool ${SEARCH_TOOL}, and the text of the first pages that it finds.`,
  arguments: z.object({
    search_query: z.string().min(1).max(1_024),
    goals_to_browse: GoalsSchema,
    region: z.string().max(16).optional().describe('For example en-US.'),
    num_results: z.int().min(1).max(10).default(3).describe('How many pages are read.'),
  }),
  run: (place, { search_query: query, region, num_results: count }) =>
    searchAndBrowse(place, { query, region, count }),
});

/** Their paths begin at the workspace, with or without its name before them. */
export function workspacePath(path: string): string {
  const parts = path.split('/').filter((part) => part !== '' && part !== '.');
  const below = parts[0] === WORKSPACE_NAME ? parts.slice(1) : parts;
  return below.length === 0 ? '.' : below.join('/');
}

export const XAGENT_TOOLS: readonly XAgentTool[] = [
  executeCell,
  shellCommand,
  readFromFile,
  writeToFile,
  printTree,
  browseWebsite,
  searchWeb,
];

export const XAGENT_ENVIRONMENTS: Readonly<Record<string, string>> = {
  PythonNotebook: 'Python in a notebook whose variables live on.',
  FileSystemEnv: 'The files of the workspace.',
  [WEB_ENVIRONMENT]: 'Pages of the web, as far as the network of the session reaches.',
};
