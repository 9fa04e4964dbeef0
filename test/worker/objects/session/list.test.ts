import { runInDurableObject } from 'cloudflare:test';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { SessionStore } from '../../../../worker/objects/session/rows/store.ts';
import type { HostDouble } from '../../../fixtures/host-double/host-double.ts';
import { connectFakeHost } from '../../harness/fake-host.ts';
import { call, caller, openSession, sessionObject, type TestSession } from '../../harness/sessions.ts';

let host: HostDouble;
let session: TestSession;

beforeEach(async () => {
  host = await connectFakeHost();
  session = await openSession(host);
});
afterEach(() => host.close());

describe('the list of executions', () => {
  test('is a summary: it says how much each wrote, and gives nothing of it', async () => {
    host.script = async (execution) => {
      execution.started();
      await execution.write('stdout', 'out');
      await execution.write('stderr', 'error');
      execution.part('value', '42');
      execution.part('structured', '{"a":1}');
      execution.part('result', 'iVBO', { mime: 'image/png' });
      await execution.finish();
    };
    const whole = await session.stub.execute(call('x'));
    if (!whole.ok) throw new Error(whole.detail);
    expect(whole.value).toMatchObject({ stdout: 'out', value: '42', results: [{ mime: 'image/png' }] });
    const listed = await session.stub.listExecutions(caller, { limit: 1 });
    const empty = { stdout: '', stderr: '', value: null, structured: null, results: [] };
    expect(listed).toEqual({
      ok: true,
      value: { executions: [{ ...whole.value, ...empty }], next_cursor: null },
    });
  });

  test('is given also where all results together are more than one answer may hold', async () => {
    const count = 12;
    for (let n = 1; n <= count; n += 1) await session.stub.execute(call(`${n}`));
    const stub = sessionObject(session.id);
    await runInDurableObject(stub, (_object, state) => {
      const store = new SessionStore(state);
      const bytes = new Uint8Array(900_000).fill(0x61);
      for (let n = 1; n <= count; n += 1) {
        for (let index = 0; index < 4; index += 1) {
          store.output.insertPart(n, index, {
            field: 'result',
            idx: index,
            mime: 'text/html',
            last: true,
            bytes,
          });
        }
      }
    });
    const listed = await session.stub.listExecutions(caller, { limit: count });
    expect(listed.ok && listed.value.executions).toHaveLength(count);
  });

  test('says of one that runs what has come so far', async () => {
    const begun = Promise.withResolvers<void>();
    host.script = async (execution) => {
      execution.started();
      await execution.write('stdout', 'begun');
      begun.resolve();
      await execution.interrupted;
      await execution.finish({ status: 'interrupted', exit_code: null });
    };
    const answer = session.stub.execute(call('x'));
    await begun.promise;
    await expect
      .poll(async () => session.stub.listExecutions(caller, { limit: 1 }))
      .toMatchObject({ value: { executions: [{ status: 'running', stdout: '', stdout_bytes: 5 }] } });
    await session.stub.interrupt(caller, null);
    expect(await answer).toMatchObject({ value: { status: 'interrupted', stdout: 'begun' } });
  });
});

test('an execution shows nothing of those that came after it', async () => {
  const texts = ['a', 'bb', 'ccc'];
  const ids: string[] = [];
  for (const text of texts) {
    const answer = await session.stub.execute(call(text));
    if (!answer.ok) throw new Error(answer.detail);
    ids.push(answer.value.execution_id);
  }
  for (const [index, stdout] of texts.entries()) {
    expect(await session.stub.getExecution(caller, ids[index] ?? '')).toMatchObject({
      value: { stdout, stdout_bytes: stdout.length },
    });
  }
});
