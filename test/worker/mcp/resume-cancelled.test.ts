/** Requests that were cancelled, and who comes back for their streams. */
import { abortAllDurableObjects, runDurableObjectAlarm, runInDurableObject } from 'cloudflare:test';
import { env } from 'cloudflare:workers';
import { describe, expect, test, vi } from 'vitest';
import * as z from 'zod';
import { sha256Hex } from '../../../shared/digest.ts';
import { ExecutionSchema } from '../../../shared/execution.ts';
import { api } from '../harness/api.ts';
import { eventually } from '../harness/eventually.ts';
import { alice, answersIn, begin, comeBack, options, steps, useStage } from './resuming.ts';
import { resume, rpc } from './rpc.ts';

const stage = useStage();

describe('a request that was cancelled', () => {
  const cancelled = { jsonrpc: '2.0', method: 'notifications/cancelled', params: { requestId: 7 } };
  const hold = () => steps({ session_id: stage.sessionId }, 'hold');

  test('has no answer for who comes back', async () => {
    const first = await begin(hold());
    await first.next();
    await stage.newestExecution();
    expect((await rpc(cancelled, await options())).status).toBe(202);
    expect(answersIn(await first.rest())).toEqual([]);
    await abortAllDurableObjects();
    expect((await resume(first.lastId, await options())).status).toBe(204);
  });

  test('is forgotten when nobody can come back for it any more', async () => {
    const first = await begin(hold());
    await first.next();
    await stage.newestExecution();
    await rpc(cancelled, await options());
    await first.rest();
    const calls = env.MCP_CALLS.get(env.MCP_CALLS.idFromName(`acme:subject:${await sha256Hex('alice')}`));
    const kept = () => runInDurableObject(calls, async (_, { storage }) => (await storage.list()).size);
    const before = await kept();
    expect(before).toBeGreaterThan(0);
    expect(await runDurableObjectAlarm(calls)).toBe(true);
    expect(await kept()).toBe(before);
    vi.useFakeTimers({ toFake: ['Date'], now: Date.now() + 86_400_000 });
    expect(await runDurableObjectAlarm(calls)).toBe(true);
    expect(await kept()).toBe(0);
    expect(await runDurableObjectAlarm(calls)).toBe(false);
  });

  test('while somebody has come back has none either, and its program is stopped', async () => {
    const first = await begin(hold());
    await first.next();
    const execution = await stage.newestExecution();
    await first.cut();
    const second = await comeBack(first.lastId);
    await second.next();
    // The cancellation is for both, wherever each of them is on its way.
    await eventually(async () => {
      await rpc(cancelled, await options());
      expect((await resume(first.lastId, await options())).status).toBe(204);
    });
    await execution.interrupted;
    expect(answersIn(await second.rest())).toEqual([]);
  });

  test('is none that was interrupted otherwise: that has an answer', async () => {
    const first = await begin(hold());
    await first.next();
    await stage.newestExecution();
    await first.cut();
    const second = await comeBack(first.lastId);
    const path = `/v1/sessions/${stage.sessionId}`;
    await api('POST', `${path}/interrupt`, { token: await alice(), body: {} });
    expect(answersIn(await second.rest())).toMatchObject([{ id: 7, result: { isError: true } }]);
    const listed = await api('GET', `${path}/executions`, { token: await alice() });
    const { executions } = z.object({ executions: z.array(ExecutionSchema) }).parse(listed.json);
    expect(executions.map(({ status }) => status)).toEqual(['interrupted']);
  });
});
