/** XAgent's shells that go on between calls, as its client asks for them; a host that plays them says what comes next. */
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';
import * as z from 'zod';
import type { Process } from '../../../shared/program.ts';
import type { HostDouble } from '../../fixtures/host-double/host-double.ts';
import type { TransferDouble } from '../../fixtures/host-double/transfer-double.ts';
import { tokenOf } from '../fixture-issuer.ts';
import { connectFakeHost } from '../harness/fake-host.ts';
import { detailIn, send } from './adapter-client.ts';

const PID = 41;

/** The one shell that the host plays. */
interface Shell {
  process: Process;
  written: string;
  inputs: { text: string; end: boolean }[];
  /** What a command does, once it comes. */
  obeys: (shell: Shell, text: string) => void;
}

let host: HostDouble;
let headers: Record<string, string>;
const shells: Shell[] = [];
let obeys: Shell['obeys'];

beforeAll(async () => {
  host = await connectFakeHost();
  host.transferScript = play;
  const token = await tokenOf({ claims: { tenant: 'acme', sub: 'alice' } });
  const Authorization = `Basic ${btoa(`sandgate:${token}`)}`;
  const node = await send('POST', '/xagent/get_cookie', { headers: { Authorization } });
  headers = { Authorization, Cookie: node.headers.get('Set-Cookie')?.split(';')[0] ?? '' };
});
beforeEach(() => {
  shells.length = 0;
  obeys = (shell, text) => say(shell, `${text.trim()} begun\n`);
});
afterAll(() => {
  expect(host.failures).toEqual([]);
  return host.close();
});

function say(shell: Shell, text: string): void {
  shell.written += text;
  shell.process.log_bytes = shell.written.length;
}

function end(shell: Shell, exit_code: number | null, signal: string | null = null): void {
  Object.assign(shell.process, { state: 'exited', exit_code, signal, ended_at: new Date().toISOString() });
}

async function play(transfer: TransferDouble): Promise<void> {
  const { request } = transfer;
  if (request.operation === 'process_start') shells.push(begun(request.process_id, request.command));
  const shell = shells.find(
    ({ process }) => 'process_id' in request && process.process_id === request.process_id,
  );
  if (request.operation === 'process_list')
    return answer(transfer, { processes: shells.map(({ process }) => process) });
  if (shell === undefined) return transfer.failed('not_found', 'no such process');
  switch (request.operation) {
    case 'process_input':
      if (shell.inputs.at(-1)?.end === true)
        return transfer.failed('execution_not_running', 'the input was closed before');
      shell.process.input_at = shell.written.length;
      shell.inputs.push({ text: atob(request.bytes), end: request.end });
      shell.obeys(shell, atob(request.bytes));
      return answer(transfer, shell.process);
    case 'process_wait':
      return answer(transfer, {
        reached: shell.process.state === 'exited',
        line: null,
        process: shell.process,
      });
    case 'process_stop':
      if (shell.process.state === 'running') end(shell, null, 'SIGKILL');
      return answer(transfer, shell.process);
    case 'process_logs': {
      const offset = request.after ?? 0;
      const text = shell.written.slice(offset);
      const event = { type: 'output', stream: 'stdout', offset, end: offset + text.length, text };
      return answer(transfer, event, '\n');
    }
    default:
      return answer(transfer, shell.process);
  }
}

function begun(process_id: string, command: string): Shell {
  const process: Process = {
    process_id,
    command,
    cwd: '/workspace',
    state: 'running',
    pid: PID + shells.length,
    exit_code: null,
    signal: null,
    started_at: new Date().toISOString(),
    ended_at: null,
    log_bytes: 0,
    log_start: 0,
  };
  return { process, written: '', inputs: [], obeys };
}

async function answer(transfer: TransferDouble, value: object, ending = ''): Promise<void> {
  transfer.head();
  await transfer.data(new TextEncoder().encode(`${JSON.stringify(value)}${ending}`));
  transfer.done();
}

const execute = (args: object) =>
  send('POST', '/xagent/execute_tool', {
    headers,
    json: { tool_name: 'shell_command_executor', arguments: args },
  });
const dataOf = (json: unknown) =>
  z.object({ type: z.literal('simple'), data: z.looseObject({}) }).parse(json).data;

test('a command that goes on is answered with its shell and what it wrote so far, and later with its end', async () => {
  const started = await execute({ command: 'serve', run_async: true });
  expect(dataOf(started.json)).toEqual({
    shell_id: PID,
    display: '\nstdout:\nserve begun\n',
    status: 'the shell runs on, without a return code yet',
  });
  const [shell] = shells;
  if (shell === undefined) throw new Error('a shell was expected');
  expect(shell.inputs).toEqual([{ text: 'serve\n', end: false }]);
  say(shell, 'served\n');
  shell.obeys = (one) => end(one, 0);
  expect(dataOf((await execute({ shell_id: PID })).json)).toEqual({
    ReturnCode: 0,
    display: '\nstdout:\nserve begun\nserved\n',
  });
  expect(shell.inputs.at(-1), 'whoever waits has nothing more to say').toEqual({ text: '', end: true });
  const late = await execute({ shell_id: PID, command: 'more', run_async: true });
  expect(late.status).toBe(500);
  expect(detailIn(late)).toEqual({ Error: expect.stringContaining(`${PID} takes no more commands`) });
});

test('one that does not end in time is answered as not ready, with the call to make next', async () => {
  await execute({ command: 'slow', run_async: true });
  const waited = await execute({ shell_id: PID, command: 'exit' });
  expect(waited.status).toBe(450);
  expect(detailIn(waited)).toEqual({
    type: 'retry',
    next_calling: 'shell_command_executor',
    arguments: { shell_id: PID },
  });
  const [shell] = shells;
  if (shell === undefined) throw new Error('a shell was expected');
  end(shell, 3);
  const again = await execute({ shell_id: PID });
  expect(again.status, 'a return code that is not zero is a failure there').toBe(500);
  expect(detailIn(again)).toEqual({ ReturnCode: 3, display: '\nstdout:\nexit begun\n' });
});

test('a shell is ended on request, and one that there is not is named', async () => {
  await execute({ command: 'serve', run_async: true });
  const killed = await execute({ shell_id: PID, kill: true });
  expect(dataOf(killed.json)).toEqual({ ReturnCode: 'SIGKILL', display: '\nstdout:\nserve begun\n' });
  const once = await execute({ command: 'look', run_async: true, kill: true });
  expect(dataOf(once.json)).toMatchObject({ shell_id: PID + 1, status: 'the shell was killed' });
  const unknown = await execute({ shell_id: 7, command: 'x' });
  expect(unknown.status).toBe(500);
  expect(detailIn(unknown)).toEqual({ Error: expect.stringContaining('no shell 7') });
  expect((await execute({ command: '' })).status, 'nothing to run').toBe(422);
});
