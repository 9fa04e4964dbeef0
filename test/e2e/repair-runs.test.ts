/** Self-healing on the real stack: what a failed attempt did to files and variables is gone before the next one. */
import { once } from 'node:events';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { type RepairRun, RepairRunSchema } from '../../shared/repair.ts';
import { SnapshotListSchema, SnapshotSchema } from '../../shared/snapshot-resource.ts';
import { PATIENCE_MS } from '../patience.ts';
import { useStack } from './stack.ts';
import { until } from './until.ts';

/** Stands for a model: gives its answers in turn. */
let server: Server;
const answers: string[] = [];
let origin = '';

beforeAll(async () => {
  server = createServer((request, response) => {
    request.resume();
    request.on('end', () => {
      const content = answers.shift() ?? 'I know no more.';
      response.setHeader('content-type', 'application/json');
      response.end(JSON.stringify({ choices: [{ message: { role: 'assistant', content } }] }));
    });
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  origin = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
});
afterAll(() => {
  server.close();
});

const stack = useStack(
  () => ({}),
  async () => ({ HTTP_TOOL_ORIGINS: JSON.stringify([origin]) }),
);

async function mend(path: string, code: string): Promise<RepairRun> {
  const body = { code, model: { tool_name: 'model', name: 'mender' } };
  const { value } = await stack().api.json(RepairRunSchema, 'POST', `${path}/repair_runs`, { body });
  return until('the run has ended', 2 * PATIENCE_MS, async () => {
    const run = await stack().api.json(RepairRunSchema, 'GET', `${path}/repair_runs/${value.repair_run_id}`);
    return run.value.status === 'running' ? undefined : run.value;
  });
}

describe('a self-healing run', () => {
  test('begins each attempt where the first began, and leaves nothing of those that failed', async () => {
    const tool = { description: 'A model', kind: 'http', url: `${origin}/v1/chat/completions` };
    await stack().api.request('PUT', '/v1/tools/model', { body: tool });
    const session = await stack().open();
    await session.py('count = 1');
    await session.sh('echo kept > /workspace/kept');
    const broken = `count += 1\nopen('/tmp/h', 'a').write('x')\nopen('/workspace/kept', 'a').write('x')\nraise RuntimeError('same')`;
    answers.push("```python\ncount += 1\nopen('/tmp/h', 'a').write('y')\nprint(count)\n```");
    const run = await mend(session.path, broken);
    expect(run).toMatchObject({
      status: 'succeeded',
      attempts: [
        { status: 'failed', error: 'RuntimeError: same', rolled_back: true },
        { status: 'succeeded', rolled_back: false },
      ],
    });
    expect((await session.py('count')).value).toBe('2');
    expect((await session.sh('cat /tmp/h; cat /workspace/kept')).stdout).toBe('ykept\n');
    const { value: left } = await stack().api.json(SnapshotListSchema, 'GET', '/v1/snapshots');
    expect(left.snapshots).toEqual([]);
    const { receipts } = await session.receipts();
    expect(receipts.length).toBeGreaterThanOrEqual(5);
  });
});

test('a session is brought back to a snapshot of itself, and to none of another', async () => {
  const [session, other] = [await stack().open(), await stack().open()];
  await session.py('x = 1');
  const { value: snapshot } = await stack().api.json(SnapshotSchema, 'POST', `${session.path}/snapshots`, {
    body: { name: 'one' },
  });
  await session.py('x = 2');
  await session.sh('echo later > /workspace/later');
  const body = { snapshot_id: snapshot.snapshot_id };
  const rolled = await stack().api.request('POST', `${session.path}/rollback`, { body });
  expect(rolled.status, rolled.text).toBe(200);
  expect((await session.py('x')).value).toBe('1');
  expect((await session.sh('ls /workspace')).stdout).toBe('');
  const refused = await stack().api.request('POST', `${other.path}/rollback`, { body });
  expect(refused.status).toBe(404);
});
