/** How a file of each language is run: by what its name or its first line says, and what an image may have for it. */
import type { RunLanguage } from '../../../../shared/run-languages.ts';

export interface Language {
  title: string;
  extensions: readonly string[];
  /** Interpreters that a first line may name, without their version. */
  shebangs: readonly string[];
  /** Programs that can do it, the best first. */
  programs: readonly string[];
  /** Shell words between the program and the file. */
  flags?: Readonly<Record<string, string>>;
  /** Shell command that builds `$out` from `$file` with `$program`; without it the program runs the file itself. */
  build?: string;
}

export const LANGUAGES: Record<RunLanguage, Language> = {
  python: { title: 'Python', extensions: ['py'], shebangs: ['python'], programs: ['python3', 'python'] },
  javascript: {
    title: 'JavaScript',
    extensions: ['js', 'mjs', 'cjs'],
    shebangs: ['node', 'nodejs'],
    programs: ['node', 'bun', 'deno'],
    flags: { deno: 'run -A' },
  },
  typescript: {
    title: 'TypeScript',
    extensions: ['ts', 'mts', 'cts'],
    shebangs: ['tsx', 'ts-node', 'bun', 'deno'],
    programs: ['tsx', 'ts-node', 'bun', 'deno'],
    flags: { deno: 'run -A' },
  },
  shell: {
    title: 'shell',
    extensions: ['sh', 'bash'],
    shebangs: ['sh', 'bash', 'dash'],
    programs: ['bash', 'sh'],
  },
  c: {
    title: 'C',
    extensions: ['c'],
    shebangs: [],
    programs: ['gcc', 'clang', 'cc'],
    build: '"$program" -O1 -pthread -x c -o "$out" "$file" -lm',
  },
  cpp: {
    title: 'C++',
    extensions: ['cpp', 'cc', 'cxx', 'c++'],
    shebangs: [],
    programs: ['g++', 'clang++', 'c++'],
    build: '"$program" -O1 -pthread -x c++ -o "$out" "$file" -lm',
  },
  go: {
    title: 'Go',
    extensions: ['go'],
    shebangs: [],
    programs: ['go'],
    build: 'GOCACHE=/tmp/.go-build "$program" build -o "$out" "$file"',
  },
  rust: {
    title: 'Rust',
    extensions: ['rs'],
    shebangs: [],
    programs: ['rustc'],
    build: '"$program" -C opt-level=1 -o "$out" "$file"',
  },
  java: { title: 'Java', extensions: ['java'], shebangs: [], programs: ['java'] },
  ruby: { title: 'Ruby', extensions: ['rb'], shebangs: ['ruby'], programs: ['ruby'] },
  php: { title: 'PHP', extensions: ['php'], shebangs: ['php'], programs: ['php'] },
  perl: { title: 'Perl', extensions: ['pl', 'pm'], shebangs: ['perl'], programs: ['perl'] },
  lua: {
    title: 'Lua',
    extensions: ['lua'],
    shebangs: ['lua'],
    programs: ['lua', 'lua5.4', 'lua5.3', 'luajit'],
  },
  r: { title: 'R', extensions: ['r'], shebangs: ['Rscript'], programs: ['Rscript'] },
};

export const ALL_PROGRAMS: readonly string[] = [
  ...new Set(Object.values(LANGUAGES).flatMap(({ programs }) => programs)),
];
