import { once } from 'node:events';
import { describe, expect, it } from 'vitest';
import { killProcess } from '../../../host-agent/process/process-table.ts';
import { type SpawnedProcess, spawnStarter } from '../../../host-agent/process/spawn.ts';

/** Starts a program that writes its own id, then what it reads, and ends itself, with the code that it is given. */
function starter({ exitCode = 0 } = {}): SpawnedProcess {
  const echoing = 'console.log(process.pid); process.stdin.pipe(process.stdout); process.stderr.write("up")';
  const starting = [
    'const { spawn } = require("node:child_process");',
    `spawn(process.execPath, ["-e", ${JSON.stringify(echoing)}], { stdio: "inherit", detached: true }).unref();`,
    `process.exit(${exitCode});`,
  ].join('\n');
  return spawnStarter({ file: process.execPath, argv: ['-e', starting], environment: {} });
}

async function textOf(stream: SpawnedProcess['stdout']): Promise<string> {
  const chunks: Buffer[] = [];
  for await (const chunk of stream) chunks.push(Buffer.from(chunk));
  return Buffer.concat(chunks).toString();
}

describe('a program that starts another one', () => {
  it('leaves its streams to that one, and is over when that one is', async () => {
    const started = starter();
    const written = textOf(started.stdout);
    const [error] = await once(started.stderr, 'data');
    expect(String(error)).toBe('up');
    started.stdin.write('one\n');
    started.stdin.end('two\n');
    expect(await started.exited).toEqual({ exitCode: null, signal: null, startFailure: null });
    expect((await written).split('\n').slice(1)).toEqual(['one', 'two', '']);
  });

  it('is over when that one is killed', async () => {
    const started = starter();
    started.stderr.resume();
    const [pid] = await once(started.stdout, 'data');
    killProcess(Number(String(pid)));
    expect(await started.exited).toMatchObject({ exitCode: null });
  });

  it('tells its code where it failed, and the words of both', async () => {
    const started = spawnStarter({
      file: process.execPath,
      argv: ['-e', 'console.log(process.argv[1]); process.exit(7)', '$(id) "a b'],
      environment: {},
    });
    const written = textOf(started.stdout);
    started.stderr.resume();
    expect(await started.exited).toEqual({ exitCode: 7, signal: null, startFailure: null });
    expect(await written).toBe('$(id) "a b\n');
  });

  it('says so where there is no such program', async () => {
    const started = spawnStarter({ file: '/no/such/program', argv: [], environment: {} });
    started.stdout.resume();
    const error = textOf(started.stderr);
    expect(await started.exited).toMatchObject({ exitCode: 127 });
    expect(await error).toContain('/no/such/program');
  });
});
