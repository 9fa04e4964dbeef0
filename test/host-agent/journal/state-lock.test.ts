import { mkdtemp, rm, symlink } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { lockState } from '../../../host-agent/journal/state-lock.ts';

test('a state folder belongs to one agent at a time, by whatever path it is reached', async () => {
  const directory = await mkdtemp(join(tmpdir(), 'sandgate-lock-'));
  const alias = `${directory}-alias`;
  await symlink(directory, alias);
  const first = await lockState(directory);
  expect(await lockState(directory)).toMatchObject({
    ok: false,
    detail: `another host agent uses ${directory}`,
  });
  expect((await lockState(alias)).ok).toBe(false);
  if (first.ok) await first.value.release();
  const next = await lockState(alias);
  expect(next.ok).toBe(true);
  if (next.ok) await next.value.release();
  await rm(alias);
  await rm(directory, { recursive: true });
});
