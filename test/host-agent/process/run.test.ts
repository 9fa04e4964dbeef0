import { describe, expect, it } from 'vitest';
import { run } from '../../../host-agent/process/run.ts';

const LIMITS = { timeoutMs: 20_000, maxOutputBytes: 1000 };
const node = (code: string, environment: Record<string, string> = {}) => ({
  file: process.execPath,
  argv: ['-e', code],
  environment,
});

describe('run', () => {
  it('gives output and exit code of a program', async () => {
    const completed = await run(node('console.log("out"); console.error("err"); process.exit(3)'), LIMITS);
    expect(completed).toMatchObject({
      exitCode: 3,
      signal: null,
      stdout: 'out\n',
      stderr: 'err\n',
      truncated: false,
      stopped: null,
      startFailure: null,
    });
  });

  it('keeps the first bytes of each stream and says that it cut', async () => {
    const completed = await run(node('process.stdout.write("a".repeat(300000)); console.error("e")'), LIMITS);
    expect(completed.stdout).toBe('a'.repeat(1000));
    expect(completed.stderr).toBe('e\n');
    expect(completed).toMatchObject({ exitCode: 0, truncated: true });
  });

  it('kills a program that outlives its deadline and keeps what it wrote', async () => {
    const program = node('console.log("begin"); setInterval(() => {}, 1000)');
    const completed = await run(program, { ...LIMITS, timeoutMs: 400 });
    expect(completed).toMatchObject({ exitCode: null, signal: 'SIGKILL', stopped: 'timeout' });
  });

  it('kills a program when its signal is aborted, also before it began', async () => {
    const forever = node('setInterval(() => {}, 1000)');
    const later = new AbortController();
    const running = run(forever, { ...LIMITS, signal: later.signal });
    later.abort();
    expect(await running).toMatchObject({ stopped: 'aborted', signal: 'SIGKILL' });
    expect(await run(forever, { ...LIMITS, signal: AbortSignal.abort() })).toMatchObject({
      stopped: 'aborted',
    });
  });

  it('reports a program that does not exist', async () => {
    const completed = await run({ file: '/no/such/program', argv: [], environment: {} }, LIMITS);
    expect(completed.startFailure).toContain('ENOENT');
    expect(completed).toMatchObject({ exitCode: null, signal: null, stopped: null });
  });

  it('passes arguments as they are, never through a shell', async () => {
    const hostile = ['$(id)', '; echo x', '`id`', '*', "'"];
    const completed = await run(
      {
        file: process.execPath,
        argv: ['-p', 'JSON.stringify(process.argv.slice(1))', ...hostile],
        environment: {},
      },
      LIMITS,
    );
    expect(JSON.parse(completed.stdout)).toEqual(hostile);
  });

  it('gives no variable of our own environment', async () => {
    const completed = await run(
      node('console.log(Object.keys(process.env).join())', { ONLY: 'this' }),
      LIMITS,
    );
    expect(completed.stdout).toBe('ONLY\n');
  });

  it('does not wait for a grandchild that keeps the pipes open', async () => {
    const code = `
      const { spawn } = require('node:child_process');
      const child = spawn(process.execPath, ['-e', 'setTimeout(() => {}, 5000)'], { stdio: 'inherit', detached: true });
      console.log(child.pid);
      process.exit(0);`;
    const completed = await run(node(code), LIMITS);
    process.kill(Number(completed.stdout), 'SIGKILL');
    expect(completed).toMatchObject({ exitCode: 0, stopped: null });
  });
});
