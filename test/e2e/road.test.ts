/** The road of a call, as a client sees it: one test for each thing that the service promises first. */

import { execFile } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import * as z from 'zod';
import { ExecutionSchema } from '../../shared/execution.ts';
import { readReceipt, verifyChain } from '../../shared/receipt-verify.ts';
import { PATIENCE_MS, STUCK_MS } from '../patience.ts';
import { Refused } from './client.ts';
import { useSession, useStack } from './stack.ts';
import { timed, until } from './until.ts';

const stack = useStack();
const repositoryDir = new URL('../../', import.meta.url).pathname;

describe('a session', () => {
  const session = useSession(stack);

  test('computes a product in Python', async () => {
    const result = await session().py('123456 * 654321');
    expect(result).toMatchObject({ status: 'succeeded', value: '80779853376', exit_code: 0, error: null });
    expect(result.timings_ms).not.toBeNull();
    expect(result.receipt).not.toBeNull();
  });

  test('carries a variable and a file from its first call to its second', async () => {
    await session().py("rows = [3, 1, 2]\nopen('rows.txt', 'w').write('3 1 2')");
    const second = await session().py("sorted(rows), open('rows.txt').read()");
    expect(second.value).toBe("([1, 2, 3], '3 1 2')");
  });

  test('streams lines while the program runs', async () => {
    // It goes on only when its first line has arrived.
    const command = 'echo line 1; until [ -e arrived ]; do sleep 0.1; done; echo line 2';
    const stream = await session().stream('shell', { command });
    const seen = await stream.collectActingOn('line 1', async () => {
      await session().py("open('arrived', 'w').close()");
    });
    expect(seen.stdout).toBe('line 1\nline 2\n');
    expect(seen.end).toMatchObject({ status: 'succeeded', stdout: '' });
  });

  test('ends a call at its timeout with its output so far, and nothing of it runs on', async () => {
    const command = [
      'echo before',
      'setsid sleep 901 &',
      '(trap "" TERM INT HUP; sleep 902) &',
      'nohup sleep 903 >/dev/null 2>&1 &',
      "python3 -c 'import os, time; os.fork() or (os.setsid(), os.fork() or time.sleep(904))' &",
      'sleep 905',
      'echo after',
    ].join('\n');
    const { value: result, elapsedMs } = await timed(session().sh(command, { timeoutMs: 4_000 }));
    expect(result).toMatchObject({ status: 'timeout', stdout: 'before\n' });
    expect(elapsedMs).toBeGreaterThanOrEqual(3_900);
    expect(elapsedMs).toBeLessThan(STUCK_MS);
    const left = await session().sh(
      'cat /proc/[0-9]*/cmdline | tr "\\0" " " | grep -oE "sleep.90[1-5]|sleep\\(904" | sort -u',
    );
    expect(left.stdout).toBe('');
  });

  test('ends a Python cell at its timeout, with what it started', async () => {
    const code =
      "import subprocess, time\nprint('before', flush=True)\nsubprocess.Popen(['sleep', '906'], start_new_session=True)\ntime.sleep(60)";
    const result = await session().py(code, { timeoutMs: 4_000 });
    expect(result).toMatchObject({ status: 'timeout', stdout: 'before\n' });
    expect(
      (await session().sh('cat /proc/[0-9]*/cmdline | tr "\\0" " " | grep -c "sleep 90[6]"')).stdout,
    ).toBe('0\n');
    expect((await session().py('40 + 2')).value).toBe('42');
  });

  test.each([
    ['catches interrupts', 'while True:\n  try:\n    while True: pass\n  except BaseException: pass'],
    ['ignores their signal', 'import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass'],
    [
      'blocks their signal',
      'import signal\nsignal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())\nwhile True: pass',
    ],
    ['never comes back from one long operation', "import re; re.match(r'(a+)+$', 'a' * 40 + 'b')"],
  ])('ends a cell that %s, and says whether its variables are lost', async (_name, code) => {
    await session().py('kept = 42');
    const { value: result, elapsedMs } = await timed(session().py(code, { timeoutMs: 1_000 }));
    expect(result).toMatchObject({ status: 'timeout' });
    expect(elapsedMs).toBeLessThan(STUCK_MS);
    expect((await session().py("globals().get('kept')")).value).toBe(result.state_lost ? null : '42');
    expect((await session().py('40 + 2')).value).toBe('42');
  });

  test('interrupts what runs and keeps its variables', async () => {
    await session().py('kept = [1, 2]');
    const cell = "import time\nkept.append(3)\nprint('reached', flush=True)\ntime.sleep(60)\nkept.append(4)";
    const stream = await session().stream('python', { code: cell });
    let interrupted: string | null = null;
    const { end } = await stream.collectActingOn('reached', async () => {
      interrupted = (await session().interrupt()).execution_id;
    });
    expect(end).toMatchObject({ status: 'interrupted', state_lost: false });
    expect(interrupted).toBe(end?.execution_id);
    expect((await session().py('kept')).value).toBe('[1, 2, 3]');
    const idle = await session()
      .interrupt()
      .catch((error: unknown) => error);
    if (idle instanceof Refused) expect(idle.problem.code).toBe('execution_not_running');
    else expect(idle).toEqual({ execution_id: null });
  });

  test('interrupts a shell call and cancels one that waits', async () => {
    const stream = await session().stream('shell', { command: 'echo started; sleep 60' });
    const { end, stdout } = await stream.collectActingOn('started', async () => {
      const waiting = await session().detach('shell', { command: 'touch /tmp/never' });
      await session().interrupt(waiting.execution_id);
      expect(await session().ended(waiting.execution_id, PATIENCE_MS)).toMatchObject({ status: 'cancelled' });
      await session().interrupt();
    });
    expect(end).toMatchObject({ status: 'interrupted' });
    expect(stdout).toBe('started\n');
    expect((await session().sh('test -e /tmp/never; echo $?')).stdout).toBe('1\n');
  });

  test('takes bytes for a running program', async () => {
    const started = await session().detach('shell', { command: 'read first; echo "got $first"; cat' });
    const path = `${session().path}/executions/${started.execution_id}/stdin`;
    const send = (bytes: string, query: string) =>
      fetch(`${stack().stack.url}${path}${query}`, {
        method: 'POST',
        headers: { authorization: `Bearer ${stack().api.token}`, 'content-type': 'application/octet-stream' },
        body: bytes,
      });
    const first = await until('the program reads', PATIENCE_MS, async () => {
      const answer = await send('hello\n', '');
      return answer.status === 409 ? undefined : answer;
    });
    expect(first.ok).toBe(true);
    expect((await send('rest é', '?eof=true')).ok).toBe(true);
    const ended = await session().ended(started.execution_id, PATIENCE_MS);
    expect(ended).toMatchObject({ status: 'succeeded', stdout: 'got hello\nrest é' });
  });

  test('gives an end of input to a program that nobody can feed', async () => {
    const { value: shell, elapsedMs } = await timed(session().sh('cat; read line; echo "$?"'));
    expect(shell).toMatchObject({ status: 'succeeded', stdout: '1\n' });
    expect(elapsedMs).toBeLessThan(STUCK_MS);
    expect((await session().py('input()')).error?.name).toBe('EOFError');
    expect((await session().py('import sys; sys.stdin.read()')).value).toBe("''");
  });

  test('is listed and described with its history', async () => {
    const own = await stack().open({ metadata: { purpose: 'history' }, env: { GREETING: 'hello' } });
    expect((await own.sh('echo $GREETING')).stdout).toBe('hello\n');
    await own.sh('exit 3');
    const described = await own.describe();
    expect(described).toMatchObject({
      state: 'running',
      metadata: { purpose: 'history' },
      host_id: stack().stack.hostId,
      executions: { total: 2, queued: 0, running: 0 },
    });
    const { executions } = await own.executions();
    expect(executions.map(({ status }) => status).sort()).toEqual(['failed', 'succeeded']);
    const listed = await until('the session is listed', PATIENCE_MS, async () =>
      (await stack().api.sessions()).sessions.find(({ session_id: id }) => id === own.id),
    );
    expect(listed.metadata).toEqual({ purpose: 'history' });
    await own.delete();
  });

  test('is gone after its deletion', async () => {
    const own = await stack().open();
    await own.sh('echo x');
    await own.delete();
    expect((await stack().api.request('DELETE', own.path)).status).toBe(404);
    expect([404, 410]).toContain((await stack().api.request('GET', own.path)).status);
    const { sessions } = await stack().api.sessions();
    expect(sessions.map(({ session_id: id }) => id)).not.toContain(own.id);
  });

  test('is not there for another tenant or subject, exactly as one that never was', async () => {
    const strangers = [
      await stack().clientWith({ claims: { tenant: 'stranger' } }),
      await stack().clientWith({ claims: { sub: 'stranger' } }),
    ];
    for (const stranger of strangers) {
      const answer = await stranger.request('GET', session().path);
      const absent = await stranger.request('GET', `/v1/sessions/ses_${'A'.repeat(38)}`);
      expect(answer.status).toBe(404);
      const withoutId = (text: string) => ({
        ...z.record(z.string(), z.unknown()).parse(JSON.parse(text)),
        request_id: '',
      });
      expect(withoutId(answer.text)).toEqual(withoutId(absent.text));
    }
  });
});

describe('one call in a session of its own', () => {
  test('is answered, and its session ends with it', async () => {
    const { value: result } = await stack().api.json(ExecutionSchema, 'POST', '/v1/execute', {
      body: { tool_name: 'python', arguments: { code: '123456 * 654321' } },
    });
    expect(result).toMatchObject({ status: 'succeeded', value: '80779853376' });
    await until('its session is gone', PATIENCE_MS, async () => {
      const answer = await stack().api.request('GET', `/v1/sessions/${result.session_id}`);
      return answer.status === 200 ? undefined : true;
    });
  });
});

describe('receipts', () => {
  test('verify offline by the command, and one changed byte is refused', async () => {
    const session = await stack().open();
    await session.py('x = 1\nx');
    await session.sh('exit 3');
    await session.sh('sleep 60', { timeoutMs: 300 });
    const exported = await session.receipts();
    expect(exported.receipts).toHaveLength(3);

    const folder = await mkdtemp(join(tmpdir(), 'sandgate-receipts-'));
    try {
      const chainFile = join(folder, 'chain.json');
      const keysFile = join(folder, 'keys.json');
      await writeFile(keysFile, JSON.stringify(exported.keys));
      await writeFile(chainFile, JSON.stringify(exported));
      const whole = await verifyCommand(chainFile, '--keys', keysFile);
      expect(whole).toMatchObject({ exitCode: 0 });
      expect(whole.output).toContain('chain of 3 receipts');

      const single = join(folder, 'receipt.json');
      const [first] = (await session.executions()).executions;
      await writeFile(single, JSON.stringify(await session.receipt(first?.execution_id ?? '')));
      expect(await verifyCommand(single, '--keys', keysFile)).toMatchObject({ exitCode: 0 });

      const text = JSON.stringify(exported);
      const payload = exported.receipts[1]?.payload ?? '';
      const position = text.indexOf(payload) + Math.floor(payload.length / 2);
      const changed = text[position] === 'A' ? 'B' : 'A';
      await writeFile(chainFile, text.slice(0, position) + changed + text.slice(position + 1));
      const refused = await verifyCommand(chainFile, '--keys', keysFile);
      expect(refused).toMatchObject({ exitCode: 1 });
      expect(refused.output).toContain('REFUSED');
    } finally {
      await rm(folder, { recursive: true, force: true });
    }
    await session.delete();
  });

  test('say what the results say, in a chain without gaps', async () => {
    const session = await stack().open();
    const results = [
      await session.py('print("é")'),
      await session.sh('kill -9 $$'),
      await session.file({ operation: 'list', path: '.' }),
    ];
    const exported = await session.receipts();
    const chain = await verifyChain(exported.receipts, exported.keys, session.id);
    if (!chain.ok) throw new Error(`${chain.code}: ${chain.detail}`);
    expect(chain.value.map(({ seq }) => seq)).toEqual([1, 2, 3]);
    for (const [index, receipt] of chain.value.entries()) {
      const result = results[index];
      expect(receipt).toMatchObject({
        execution_id: result?.execution_id,
        status: result?.status,
        exit_code: result?.exit_code,
        signal: result?.signal,
        stdout: { bytes: result?.stdout_bytes },
      });
      const own = readReceipt(result?.receipt);
      expect(own).toMatchObject({ ok: true, value: { receipt } });
    }
    await session.delete();
  });
});

describe('the description of the service', () => {
  test('lists the tools with schemas', async () => {
    const ToolListSchema = z.object({
      tools: z.array(
        z.object({
          name: z.string(),
          description: z.string(),
          input_schema: z.record(z.string(), z.unknown()),
        }),
      ),
    });
    const { value } = await stack().api.json(ToolListSchema, 'GET', '/v1/tools');
    expect(value.tools.map(({ name }) => name).sort()).toEqual(['file', 'node', 'python', 'run', 'shell']);
    for (const tool of value.tools) expect(tool.input_schema).toHaveProperty('type', 'object');
  });

  test('is an OpenAPI document with every route, and needs no token', async () => {
    const response = await fetch(`${stack().stack.url}/v1/openapi.json`);
    expect(response.status).toBe(200);
    const document = z
      .object({
        openapi: z.string().startsWith('3.1'),
        paths: z.record(z.string(), z.record(z.string(), z.unknown())),
      })
      .parse(await response.json());
    const methods = Object.entries(document.paths).flatMap(([path, operations]) =>
      Object.keys(operations).map(
        (method) => `${method} ${path.replace(/^\/v1/, '').replaceAll(/\{[^}]*\}/g, '{}')}`,
      ),
    );
    expect(methods).toEqual(
      expect.arrayContaining([
        'post /sessions',
        'get /sessions',
        'get /sessions/{}',
        'delete /sessions/{}',
        'post /sessions/{}/execute',
        'get /sessions/{}/executions',
        'get /sessions/{}/executions/{}',
        'get /sessions/{}/executions/{}/events',
        'get /sessions/{}/executions/{}/receipt',
        'post /sessions/{}/executions/{}/stdin',
        'post /sessions/{}/interrupt',
        'post /execute',
        'get /tools',
      ]),
    );
  });

  test('has the public keys and none that is private', async () => {
    const response = await fetch(`${stack().stack.url}/.well-known/jwks.json`);
    const { keys } = z
      .object({ keys: z.array(z.record(z.string(), z.unknown())).min(1) })
      .parse(await response.json());
    for (const key of keys) expect(key).not.toHaveProperty('d');
  });

  test.each(['/v1/sessions', '/v1/tools', '/v1/hosts'])('refuses %s without a token', async (path) => {
    const response = await fetch(`${stack().stack.url}${path}`);
    expect(response.status).toBe(401);
    expect(response.headers.get('content-type')).toContain('application/problem+json');
  });
});

function verifyCommand(...args: string[]): Promise<{ exitCode: number; output: string }> {
  const script = join(repositoryDir, 'scripts/verify.ts');
  return new Promise((resolve) => {
    const child = execFile(process.execPath, [script, ...args], (_error, stdout, stderr) => {
      resolve({ exitCode: child.exitCode ?? -1, output: stdout + stderr });
    });
  });
}
