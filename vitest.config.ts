import { availableParallelism } from 'node:os';
import { cloudflareTest } from '@cloudflare/vitest-plugin';
import { defineConfig } from 'vitest/config';
import { filesWithoutObjects } from './test/files-without-objects.ts';
import { workerTestBindings } from './test/fixtures/worker-test-bindings.ts';
import { REPAIR_MODELS, WORKERS_AI } from './test/fixtures/workers-ai-stand-in.ts';
import { PATIENCE_MS } from './test/patience.ts';

const REAL_TIMEOUT_MS = 120_000;
/** Longer than what a test waits for, so that it can say what did not come. */
const patient = {
  testTimeout: 2 * PATIENCE_MS,
  hookTimeout: 2 * PATIENCE_MS,
  expect: { poll: { timeout: PATIENCE_MS } },
};
/** For tests that run parts of an agent in their own process. */
const setupFiles = ['./test/fixtures/digest-library.ts'];
const real = {
  setupFiles: [...setupFiles, './test/fixtures/own-connections.ts'],
  testTimeout: REAL_TIMEOUT_MS,
  hookTimeout: REAL_TIMEOUT_MS,
  teardownTimeout: REAL_TIMEOUT_MS,
};
/** What measures sandboxes runs alone: two such files at once would measure each other. */
const serial = { ...real, fileParallelism: false };
/** Also on two cores, where vitest by itself would run one file at a time: most files wait more than they compute. */
const besideEachOther = { maxWorkers: Math.max(2, availableParallelism() - 1) };
/** What has bounds that a second stack on two cores would break, takes all of both, or has the folders of an installed host. */
const ALONE = [
  'agent-memory',
  'backpressure',
  'churn',
  'install',
  'output',
  'pausing',
  'process',
  'service',
  'start',
].map((name) => `test/e2e/${name}.test.ts`);
/** What is seeded goes the same way each time; other ways are for runs of hours. */
const seeded = { env: { SANDGATE_TEST_SEED: process.env.SANDGATE_TEST_SEED ?? '1' } };
/** Each has a stack of its own, found by its state folder; more than two would be slow rather than waiting. */
const twoStacks = { ...real, maxWorkers: 2, maxConcurrency: 10 };
const withoutObjects = filesWithoutObjects();
/** One a project: what it resolves is the project's own. */
const workerd = () =>
  cloudflareTest(async () => ({
    wrangler: { configPath: './wrangler.toml' },
    miniflare: {
      bindings: { ...(await workerTestBindings()), REPAIR_MODELS: JSON.stringify(REPAIR_MODELS) },
      serviceBindings: { AI: WORKERS_AI.name },
      workers: [WORKERS_AI],
    },
  }));

export default defineConfig({
  test: {
    projects: [
      {
        test: {
          name: 'node',
          environment: 'node',
          setupFiles,
          ...patient,
          ...besideEachOther,
          include: ['test/*.test.ts', 'test/{shared,host-agent,scripts,bench}/**/*.test.ts'],
        },
      },
      {
        plugins: [workerd()],
        test: {
          name: 'worker',
          ...patient,
          ...besideEachOther,
          include: ['test/worker/**/*.test.ts'],
          exclude: withoutObjects,
        },
      },
      // They share a workerd: starting one is most of what such a file takes.
      {
        plugins: [workerd()],
        test: {
          name: 'worker-functions',
          ...patient,
          ...besideEachOther,
          include: withoutObjects,
          isolate: false,
          restoreMocks: true,
          unstubGlobals: true,
        },
      },
      { test: { name: 'contract', environment: 'node', include: ['test/contract/**/*.test.ts'], ...serial } },
      // Only by name, `npm run test:long`: it builds every image.
      { test: { name: 'images', environment: 'node', include: ['test/images/**/*.test.ts'], ...serial } },
      // Likewise: hours rather than minutes.
      { test: { name: 'long', environment: 'node', include: ['test/long/**/*.test.ts'], ...serial } },
      {
        test: {
          name: 'e2e',
          environment: 'node',
          include: ['test/e2e/**/*.test.ts'],
          exclude: ALONE,
          ...twoStacks,
          ...seeded,
          sequence: { groupOrder: 1 },
        },
      },
      { test: { name: 'e2e-alone', environment: 'node', include: ALONE, ...serial, ...seeded } },
      // Only where `npm run test:machine` calls it: on a machine that is made for it.
      { test: { name: 'machine', environment: 'node', include: ['test/machine/**/*.test.ts'], ...serial } },
    ],
  },
});
