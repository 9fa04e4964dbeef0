/** The settings of an installed host: lines of `NAME=value` that systemd reads too. */
import { mkdir, open, readFile, rename } from 'node:fs/promises';
import { dirname } from 'node:path';

export const FIRST_SETTINGS = `# Settings of this host; 'systemctl restart sandgate-host' makes them count.
# SANDGATE_CAPACITY=16
# SANDGATE_MAX_CPUS=4
# SANDGATE_MAX_MEMORY_BYTES=8589934592
# SANDGATE_LOG_LEVEL=info
SANDGATE_METRICS_PORT=9464
`;

const LINE = /^([A-Z][A-Z0-9_]*)=(.*)$/;

/** Empty where there is no file. */
export async function readSettings(path: string): Promise<Record<string, string>> {
  const text = await readFile(path, 'utf8').catch(() => '');
  return Object.fromEntries(
    text.split('\n').flatMap((line) => {
      const match = LINE.exec(line);
      return match?.[1] === undefined ? [] : [[match[1], match[2] ?? '']];
    }),
  );
}

/** Sets these, keeps all other lines as they are. */
export function withSettings(text: string, settings: Record<string, string>): string {
  const kept = text.split('\n').filter((line) => !((LINE.exec(line)?.[1] ?? '') in settings));
  while (kept.at(-1) === '') kept.pop();
  const set = Object.entries(settings).map(([name, value]) => `${name}=${value}`);
  return `${[...kept, ...set].join('\n')}\n`;
}

export async function writeSettings(path: string, settings: Record<string, string>): Promise<void> {
  const text = await readFile(path, 'utf8').catch(() => FIRST_SETTINGS);
  await writeWhole(path, withSettings(text, settings), 0o600);
}

/** Whole or not at all. */
export async function writeWhole(path: string, text: string, mode: number): Promise<void> {
  await mkdir(dirname(path), { recursive: true });
  const temporary = `${path}.new`;
  const file = await open(temporary, 'w', mode);
  try {
    await file.writeFile(text);
    await file.sync();
  } finally {
    await file.close();
  }
  await rename(temporary, path);
}
