/** From what is known of a file and its image to the command that runs it. Pure. */

import { type RunLanguage, RunLanguageSchema } from '../../../../shared/run-languages.ts';
import type { RunArguments } from '../../../../shared/tool.ts';
import { failedEnd, type ToolEnd } from '../tool.ts';
import { ALL_PROGRAMS, LANGUAGES } from './languages.ts';

/** What the sandbox says of the file and of itself. */
export interface Probe {
  found: 'file' | 'missing' | 'directory' | 'unreadable';
  /** Of `ALL_PROGRAMS`, those that it has. */
  programs: readonly string[];
  isExecutable: boolean;
  /** First bytes up to the end of the line, as latin-1. */
  firstLine: string;
}

const MAX_FIRST_LINE_BYTES = 256;
const ELF = '\x7fELF';

/** Bash that tells about the file; `parseProbe` reads it. Bytes that bash cannot hold are left out of the line. */
export function probeCommand(path: string): string {
  return [
    `file=${quoted(fileWord(path))}`,
    'if [ -d "$file" ]; then echo directory',
    'elif [ ! -e "$file" ]; then echo missing',
    'elif [ ! -r "$file" ]; then echo unreadable',
    'else echo file',
    '  if [ -x "$file" ]; then echo x; else echo -; fi',
    `  for program in ${ALL_PROGRAMS.map(quoted).join(' ')}; do type -P "$program" >/dev/null && printf '%s ' "$program"; done`,
    '  echo',
    `  LC_ALL=C; IFS= read -r -N ${MAX_FIRST_LINE_BYTES} line <"$file" 2>&-; printf '%s\\n' "\${line%%$'\\n'*}"`,
    'fi',
  ].join('\n');
}

export function parseProbe(output: string): Probe | undefined {
  const [found, executable, programs, firstLine] = output.split('\n');
  if (found === 'missing' || found === 'directory' || found === 'unreadable') {
    return { found, programs: [], isExecutable: false, firstLine: '' };
  }
  if (found !== 'file' || firstLine === undefined) return undefined;
  return {
    found,
    isExecutable: executable === 'x',
    programs: programs?.split(' ').filter((name) => ALL_PROGRAMS.includes(name)) ?? [],
    firstLine,
  };
}

export type Plan = { ok: true; command: string } | { ok: false; end: ToolEnd };

export function planRun(given: RunArguments, probe: Probe): Plan {
  const { path } = given;
  switch (probe.found) {
    case 'missing':
      return refuse('FileNotFound', `${path}: no such file`);
    case 'directory':
      return refuse('IsADirectory', `${path}: it is a directory`);
    case 'unreadable':
      return refuse('PermissionDenied', `${path}: it cannot be read`);
    case 'file':
  }
  const language = given.language ?? languageOf(path, probe.firstLine);
  if (language === undefined) {
    if (probe.isExecutable && (probe.firstLine.startsWith(ELF) || probe.firstLine.startsWith('#!'))) {
      return { ok: true, command: `${withArguments(given)}\nexec "$file" "$@"` };
    }
    return refuse('UnknownLanguage', `${path}: its name and first line do not say its language; ${known()}`);
  }
  const { title, programs, flags, build } = LANGUAGES[language];
  const program = programs.find((name) => probe.programs.includes(name));
  if (program === undefined) return refuse('InterpreterMissing', missing(language, probe.programs));
  const before = `${withArguments(given)}\nprogram=${program}`;
  if (build === undefined) {
    return { ok: true, command: `${before}\nexec "$program" ${flags?.[program] ?? ''} "$file" "$@"` };
  }
  // What the run before built goes now and not at its end: so the program is all that is left of this shell.
  const built = `dir=/tmp/.run; rm -rf "$dir"; mkdir -m 700 "$dir" || exit; out=$dir/program`;
  const failed = `{ code=$?; echo "${title}: the build failed" >&2; exit "$code"; }`;
  return { ok: true, command: `${before}\n${built}\n${build} || ${failed}\nexec "$out" "$@"` };
}

function languageOf(path: string, firstLine: string): RunLanguage | undefined {
  const name = path.slice(path.lastIndexOf('/') + 1);
  const extension = name.includes('.', 1) ? name.slice(name.lastIndexOf('.') + 1).toLowerCase() : '';
  const interpreter = /^#!\s*(?:\S*\/)?(?:env\s+(?:-S\s+)?)?(?:\S*\/)?([A-Za-z+-]+)/.exec(firstLine)?.[1];
  return RunLanguageSchema.options.find((language) => {
    const { extensions, shebangs } = LANGUAGES[language];
    return extensions.includes(extension) || (interpreter !== undefined && shebangs.includes(interpreter));
  });
}

function missing(language: RunLanguage, programs: readonly string[]): string {
  const { title, programs: wanted } = LANGUAGES[language];
  return `the image has no ${wanted[0] ?? ''} to run ${title} with; it can run ${runnable(programs).join(', ') || 'nothing'}`;
}

function runnable(programs: readonly string[]): string[] {
  return RunLanguageSchema.options.filter((language) =>
    LANGUAGES[language].programs.some((name) => programs.includes(name)),
  );
}

function known(): string {
  return `give one in \`language\`: ${RunLanguageSchema.options.join(', ')}`;
}

function refuse(name: string, message: string): Plan {
  return { ok: false, end: failedEnd(name, message) };
}

function withArguments({ path, args }: RunArguments): string {
  return `file=${quoted(fileWord(path))}\nset -- ${args.map(quoted).join(' ')}`;
}

/** No file name is taken for an option. */
function fileWord(path: string): string {
  return path.startsWith('/') ? path : `./${path}`;
}

function quoted(text: string): string {
  return `'${text.replaceAll("'", `'\\''`)}'`;
}
