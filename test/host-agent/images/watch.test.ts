import { mkdirSync, renameSync } from 'node:fs';
import { join } from 'node:path';
import { expect, onTestFinished, test, vi } from 'vitest';
import { watchImages } from '../../../host-agent/images/watch.ts';
import { temporaryFolder } from '../../scripts/temporary-folder.ts';

test('images that come and go are noticed, and what came before the watch began', async () => {
  const storeDir = temporaryFolder();
  const aside = join(temporaryFolder(), 'image');
  const target = join(storeDir, 'python/two');
  mkdirSync(join(storeDir, 'python/one'), { recursive: true });
  mkdirSync(aside);
  const onChange = vi.fn(async () => undefined);
  onTestFinished(watchImages(storeDir, onChange, 20));
  const calls = (count: number) => expect.poll(() => onChange.mock.calls.length).toBe(count);
  await calls(1);
  renameSync(aside, target);
  await calls(2);
  renameSync(target, aside);
  await calls(3);
});
