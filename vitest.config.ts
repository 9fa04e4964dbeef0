import { cloudflareTest } from '@cloudflare/vitest-plugin';
import { defineConfig } from 'vitest/config';
import { workerTestBindings } from './test/fixtures/worker-test-bindings.ts';

const REAL_TIMEOUT_MS = 120_000;
/** For tests that run parts of an agent in their own process. */
const setupFiles = ['./test/fixtures/digest-library.ts'];
/** What runs real sandboxes runs alone: two such files at once would measure each other. */
const serial = {
  setupFiles,
  fileParallelism: false,
  testTimeout: REAL_TIMEOUT_MS,
  hookTimeout: REAL_TIMEOUT_MS,
  teardownTimeout: REAL_TIMEOUT_MS,
};

export default defineConfig({
  test: {
    projects: [
      {
        test: {
          name: 'node',
          environment: 'node',
          setupFiles,
          // A bound on hanging, not on speed: these files run beside each other on a busy machine.
          testTimeout: 30_000,
          include: ['test/*.test.ts', 'test/{shared,host-agent,scripts,bench}/**/*.test.ts'],
        },
      },
      {
        plugins: [
          cloudflareTest(async () => ({
            wrangler: { configPath: './wrangler.toml' },
            miniflare: { bindings: await workerTestBindings() },
          })),
        ],
        // As for `node`: a bound on hanging.
        test: { name: 'worker', testTimeout: 30_000, include: ['test/worker/**/*.test.ts'] },
      },
      { test: { name: 'contract', environment: 'node', include: ['test/contract/**/*.test.ts'], ...serial } },
      // Only by name: it builds every image.
      { test: { name: 'images', environment: 'node', include: ['test/images/**/*.test.ts'], ...serial } },
      // Only by name, `npm run test:long`: hours rather than minutes.
      { test: { name: 'long', environment: 'node', include: ['test/long/**/*.test.ts'], ...serial } },
      { test: { name: 'e2e', environment: 'node', include: ['test/e2e/**/*.test.ts'], ...serial } },
    ],
  },
});
