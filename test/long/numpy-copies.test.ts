/** Copies of a sandbox whose program draws with numpy: what each of them draws is its own. */
import { expect, test } from 'vitest';
import * as z from 'zod';
import type { Sandbox } from '../../host-agent/sandbox/port.ts';
import {
  differFromTwoCopies,
  start,
  TEST_TIMEOUT_MS,
  useCheckpointHosts,
} from '../contract/checkpoint-hosts.ts';
import { python } from '../contract/subject.ts';

useCheckpointHosts('data');

/** Sources of random values by name: the one that numpy shares, and those that are made anew. */
const RANDOM_VALUES = {
  'numpy.random.random': 'numpy.random.random()',
  'numpy.random.bytes': 'numpy.random.bytes(16).hex()',
  'numpy.random.permutation': 'numpy.random.permutation(1000).tolist()',
  'numpy.random.default_rng': 'numpy.random.default_rng().random()',
  'numpy.random.RandomState': 'numpy.random.RandomState().random_sample()',
};

async function drawn(sandbox: Sandbox): Promise<Record<string, string>> {
  const values = Object.entries(RANDOM_VALUES).map(([kind, expression]) => `'${kind}': str(${expression})`);
  const { stdout, error } = await python(
    sandbox,
    `import json, numpy\nprint(json.dumps({${values.join()}}))`,
  );
  expect(error).toBeNull();
  return z.record(z.string(), z.string()).parse(JSON.parse(stdout));
}

test('R44: a sandbox with numpy differs from its copies in each kind of random value', {
  timeout: TEST_TIMEOUT_MS,
}, async () => {
  const all = await differFromTwoCopies(await start(), drawn);
  await Promise.all(all.map((one) => one.destroy()));
});
