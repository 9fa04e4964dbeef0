import { FAKE_IMAGE_DIGEST, FakeSandboxes } from '../fixtures/fake-sandboxes.ts';
import { describeSandboxes } from './sandboxes.ts';

const CAPACITY = 4;

describeSandboxes('the fake sandboxes', async () => {
  const sandboxes = new FakeSandboxes({ capacity: CAPACITY });
  return {
    sandboxes,
    imageDigest: FAKE_IMAGE_DIGEST,
    restarted: async () => new FakeSandboxes({ capacity: CAPACITY, machine: sandboxes.machine }),
    tracesOf: async (sandboxId) => (sandboxes.machine.has(sandboxId) ? [sandboxId] : []),
    [Symbol.asyncDispose]: () => sandboxes.stop(),
  };
});
