/**
 * Code in a process of its own, which leaves nothing but files behind: so their executors run theirs, while our kernels and
 * our shell keep what a call defines.
 */
import { toBase64, utf8 } from '../../shared/encoding.ts';

/** A word of a command line that stands for itself. */
export function quoted(word: string): string {
  return `'${word.replaceAll("'", `'\\''`)}'`;
}

/** A subshell: folder, variables and `exit` end with it. */
export function freshShell(command: string): string {
  return `(\n${command}\n)`;
}

/** In a folder of its own that ends with it, beside these files. */
export function freshFolder(files: Readonly<Record<string, string>>, command: string): string {
  const writes = Object.entries(files).map(([name, content]) => {
    return `printf %s ${quoted(toBase64(utf8(content.toWellFormed())))} | base64 -d > ${quoted(`./${name}`)}`;
  });
  const own = ['folder=$(mktemp -d) && cd "$folder" || exit 1', `trap 'rm -rf "$folder"' EXIT`];
  return freshShell([...own, ...writes, command].join('\n'));
}

const PYTHON_LAUNCH = `
import subprocess, sys, tempfile
with tempfile.NamedTemporaryFile("w", suffix=".py", encoding="utf-8") as script:
    script.write(source)
    script.flush()
    code = subprocess.run([sys.executable, script.name], stdin=subprocess.DEVNULL).returncode
if code:
    raise SystemExit(code if code > 0 else 128 - code)
`;

export function freshPython(source: string): string {
  return `exec(${JSON.stringify(PYTHON_LAUNCH)}, ${pythonObject({ source })})`;
}

/** JSON of texts is an expression in Python too, once no half of a pair stands alone. */
function pythonObject(texts: Record<string, string>): string {
  return JSON.stringify(
    Object.fromEntries(Object.entries(texts).map(([name, text]) => [name, text.toWellFormed()])),
  );
}

export function freshNode(source: string): string {
  return `await (async (source) => {
  const { spawn } = require('node:child_process');
  const child = spawn(process.execPath, ['--input-type=commonjs', '-'], { stdio: ['pipe', 'inherit', 'inherit'] });
  child.stdin.end(source);
  const code = await new Promise((resolve) => child.once('exit', (status, signal) => resolve(signal ?? status)));
  if (code !== 0) throw new Error('the program ended with ' + code);
})(${JSON.stringify(source)})`;
}
