/** Which tools an image can serve: those whose interpreter it has. */
import { lstat, readlink } from 'node:fs/promises';
import { dirname, join, posix } from 'node:path';

const MAX_LINKS = 40;
const DEFAULT_PATH = '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin';
const INTERPRETERS = [
  ['shell', 'bash'],
  ['python', 'python3'],
  ['node', 'node'],
] as const;

export type InterpretedTool = (typeof INTERPRETERS)[number][0];

export async function toolsOf(rootfsPath: string, searchPath = DEFAULT_PATH): Promise<InterpretedTool[]> {
  const tools: InterpretedTool[] = [];
  for (const [tool, program] of INTERPRETERS) {
    for (const dir of searchPath.split(':')) {
      if (!dir.startsWith('/') || !(await isProgram(rootfsPath, posix.join(dir, program)))) continue;
      tools.push(tool);
      break;
    }
  }
  return tools;
}

async function isProgram(rootfsPath: string, path: string): Promise<boolean> {
  const real = await resolveInside(rootfsPath, path);
  const found = real === undefined ? undefined : await lstat(real).catch(() => undefined);
  return found?.isFile() === true && (found.mode & 0o001) !== 0;
}

/** Where the path leads inside of the image; links are read one by one, so that none leads onto this machine. */
async function resolveInside(rootfsPath: string, path: string): Promise<string | undefined> {
  const ahead = path.split('/').toReversed();
  let at = '/';
  let links = 0;
  for (let component = ahead.pop(); component !== undefined; component = ahead.pop()) {
    if (component === '' || component === '.') continue;
    const next = component === '..' ? dirname(at) : posix.join(at, component);
    const found = await lstat(join(rootfsPath, next)).catch(() => undefined);
    if (found === undefined) return undefined;
    if (!found.isSymbolicLink()) {
      at = next;
      continue;
    }
    links += 1;
    if (links > MAX_LINKS) return undefined;
    const target = await readlink(join(rootfsPath, next));
    if (target.startsWith('/')) at = '/';
    ahead.push(...target.split('/').toReversed());
  }
  return join(rootfsPath, at);
}
