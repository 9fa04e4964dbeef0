/** A session with half a gigabyte of memory in use: all of it goes to the storage and comes back. */
import { expect, test } from 'vitest';
import { SessionSchema } from '../../shared/session.ts';
import type { SessionClient } from '../e2e/client.ts';
import { useStack } from '../e2e/stack.ts';

const HEAP_BYTES = 500_000_000;
const MIB = 1024 ** 2;
const stack = useStack(() => ({ SANDGATE_POOL_CEILING: '0' }));

test('500 MB of heap are suspended and come back byte for byte', { timeout: 1_800_000 }, async () => {
  const session = await stack().open({ limits: { memory_bytes: 1_536 * MIB } });
  const filled = await session.py(
    `import hashlib, os\nheap = os.urandom(${HEAP_BYTES})\nhashlib.sha256(heap).hexdigest()`,
    { timeoutMs: 300_000 },
  );
  expect(filled, filled.stderr).toMatchObject({ status: 'succeeded' });
  for (const name of ['suspend', 'resume'] as const) {
    const beganMs = performance.now();
    await act(session, name);
    console.log(`${name}: ${Math.round(performance.now() - beganMs)} ms`);
  }
  const looked = await session.py('(len(heap), hashlib.sha256(heap).hexdigest())', { timeoutMs: 300_000 });
  expect(looked).toMatchObject({ status: 'succeeded', state_lost: false });
  expect(looked.value).toBe(`(${HEAP_BYTES}, ${filled.value})`);
  await session.delete();
});

async function act(session: SessionClient, name: 'suspend' | 'resume'): Promise<void> {
  const { value } = await session.api.json(SessionSchema, 'POST', `${session.path}/${name}`);
  expect(value.state).toBe(name === 'suspend' ? 'suspended' : 'running');
}
