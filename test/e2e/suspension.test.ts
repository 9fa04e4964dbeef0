/** Suspended sessions, snapshots and forks on real sandboxes: everything that was in them goes on. */
import { readdir, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import * as z from 'zod';
import { SessionSchema } from '../../shared/session.ts';
import { ForkedSchema, SnapshotSchema } from '../../shared/snapshot-resource.ts';
import { PATIENCE_MS } from '../patience.ts';
import { SessionClient } from './client.ts';
import { collected, type SeenEvent } from './event-stream.ts';
import { cgroupsOf } from './leftovers.ts';
import { useStack } from './stack.ts';
import { until } from './until.ts';

/** Without a pool: that a suspended session leaves nothing on the host is looked for. */
const stack = useStack(() => ({ SANDGATE_POOL_CEILING: '0' }));

const TICKS = 150;
const TICKER = `import time
for n in range(${TICKS}):
    print(n, flush=True)
    time.sleep(0.02)`;

async function act(session: SessionClient, name: string) {
  return (await session.api.json(SessionSchema, 'POST', `${session.path}/${name}`)).value;
}

/** Python of a session whose state is in its kernel, its files and a program of its own. */
const FILL = `import os, random, subprocess, threading
kept = {'n': 41}
def next_number():
    kept['n'] += 1
    return kept['n']
open('/workspace/file', 'w').write('in the workspace')
open('/tmp/file', 'w').write('in tmp')
gone = open('/workspace/gone', 'w+')
gone.write('deleted and open')
gone.flush()
os.unlink('/workspace/gone')
beat = subprocess.Popen(['sh', '-c', 'n=0; while true; do n=$((n+1)); echo $n >/tmp/beat; sleep 0.05; done'])
generator = iter(range(3))
next(generator)`;
const LOOK = `gone.seek(0)
(next_number(), next(generator), open('/workspace/file').read(), open('/tmp/file').read(), gone.read(), beat.poll())`;

describe('a suspended session', () => {
  test('leaves nothing on its host, and goes on with all that it had when it is called', async () => {
    const session = await stack().open();
    expect((await session.py(FILL)).status).toBe('succeeded');
    await session.sh('cd /tmp && export KEPT=yes');
    const sandboxId = z.string().parse((await session.describe()).sandbox_id);
    const suspended = await act(session, 'suspend');
    const standing = { workdir: '/tmp', environment: { KEPT: 'yes' } };
    expect(suspended).toMatchObject({ state: 'suspended', host_id: null, sandbox_id: null, ...standing });
    await until('the host holds nothing of it', PATIENCE_MS, async () => {
      const cgroups = await cgroupsOf(stack().stack.stateDir);
      return cgroups.some((path) => path.includes(sandboxId)) ? undefined : true;
    });
    const looked = await session.py(LOOK);
    expect(looked).toMatchObject({ status: 'succeeded', state_lost: false });
    expect(looked.value).toBe("(42, 1, 'in the workspace', 'in tmp', 'deleted and open', None)");
    expect((await session.sh('pwd; echo $KEPT')).stdout).toBe('/tmp\nyes\n');
    const { generation, epoch, workdir, environment } = await session.describe();
    expect(generation).toBe(1);
    expect({ workdir, environment }).toEqual(standing);
    expect(epoch).toBeGreaterThan(suspended.epoch);
    expect((await session.sh('cat /run/sandgate/generation')).stdout.trim()).toBe('1');
    const beat = (await session.sh('cat /tmp/beat')).stdout;
    await until('the background process goes on', PATIENCE_MS, async () =>
      (await session.sh('cat /tmp/beat')).stdout === beat ? undefined : true,
    );
    // Once more, with everything else started anew in between.
    await act(session, 'suspend');
    await stack().restartEdge();
    await stack().stack.crashHostAgent();
    const again = await until('the session is back', PATIENCE_MS, async () => {
      const answer = await session.api.request('POST', `${session.path}/resume`);
      return answer.status === 200 ? true : undefined;
    });
    expect(again).toBe(true);
    expect((await session.py('next_number()')).value).toBe('43');
    expect((await session.sh('cat /run/sandgate/generation')).stdout.trim()).toBe('2');
    await session.delete();
  });

  test('lies with its host as it was until it goes on or is deleted, and nobody has to fetch it', async () => {
    const session = await stack().open();
    const images = join(stack().stack.stateDir, 'host/snapshots/images');
    await session.py('kept = 41');
    await act(session, 'suspend');
    expect(await readdir(images)).toHaveLength(1);
    expect((await stat(images)).mode & 0o777).toBe(0o700);
    expect((await session.py('kept + 1')).value).toBe('42');
    await until('it is used up', PATIENCE_MS, async () =>
      (await readdir(images)).length === 0 ? true : undefined,
    );
    await act(session, 'suspend');
    await session.delete();
    await until('it is gone with the session', PATIENCE_MS, async () =>
      (await readdir(images)).length === 0 ? true : undefined,
    );
  });

  test('goes on in the middle of a call: every number once, and the time between is not its own', async () => {
    const session = await stack().open();
    const stream = await session.stream('python', { code: TICKER }, { timeoutMs: 20_000 });
    const events: SeenEvent[] = [];
    let moving: Promise<void> | undefined;
    let printed = '';
    for await (const seen of stream) {
      events.push(seen);
      if (seen.event.event === 'stdout') printed += seen.event.text;
      if (printed.includes('\n30\n')) {
        moving ??= (async () => {
          expect((await act(session, 'suspend')).state).toBe('suspended');
          expect((await act(session, 'resume')).state).toBe('running');
        })();
      }
    }
    await moving;
    const { stdout, end } = collected(events);
    expect(end?.status).toBe('succeeded');
    expect(stdout).toBe(Array.from({ length: TICKS }, (_, n) => `${n}\n`).join(''));
    expect(end?.receipt).not.toBeNull();
    await session.delete();
  });
});

describe('a snapshot', () => {
  test('is where new sessions begin: the same history, other random numbers, each its own from there', async () => {
    const parent = await stack().open();
    await parent.py(FILL);
    const running = await parent.detach('python', {
      code: 'import time\nfor n in range(40): time.sleep(0.1)',
    });
    await until('the call runs', PATIENCE_MS, async () =>
      (await parent.execution(running.execution_id)).status === 'running' ? true : undefined,
    );
    const kept = await parent.api.json(SnapshotSchema, 'POST', `${parent.path}/snapshots`, {
      body: { name: 'filled' },
    });
    const ended = await parent.ended(running.execution_id, PATIENCE_MS);
    expect(ended, JSON.stringify(ended.error)).toMatchObject({ status: 'succeeded' });
    const { snapshot_id: id } = kept.value;
    const child = await stack().open({ from_snapshot: id });
    const forked = await parent.api.json(ForkedSchema, 'POST', `${parent.path}/fork`, { body: { count: 2 } });
    const forks = forked.value.sessions.map((opened) => new SessionClient(parent.api, opened));
    const drawn = new Set<string>();
    for (const one of [child, ...forks]) {
      const looked = await one.py(LOOK);
      expect(looked, looked.stderr).toMatchObject({ status: 'succeeded', state_lost: false });
      expect(looked.value).toBe("(42, 1, 'in the workspace', 'in tmp', 'deleted and open', None)");
      drawn.add((await one.py('random.random()')).value ?? '');
      await one.sh('echo mine >/workspace/file');
    }
    expect(drawn.size).toBe(3);
    expect((await parent.py(`open('/workspace/file').read()`)).value).toBe("'in the workspace'");
    expect((await parent.py('next_number()')).value).toBe('42');
    await parent.api.json(SessionSchema, 'POST', `${parent.path}/rollback`, { body: { snapshot_id: id } });
    expect((await parent.py('next_number()')).value).toBe('42');
    expect((await parent.api.request('DELETE', `/v1/snapshots/${id}`)).status).toBe(204);
    await Promise.all([parent, child, ...forks].map((one) => one.delete()));
  });
});
