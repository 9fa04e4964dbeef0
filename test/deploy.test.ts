/** What is deployed has every binding in every environment, and can be put together without a network or an account. */
import { spawn } from 'node:child_process';
import { mkdtemp, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, test } from 'vitest';
import { unstable_readConfig as readConfig } from 'wrangler';
import * as z from 'zod';
import { WORKER_PARTS } from '../scripts/development/worker-parts.ts';

const root = join(dirname(fileURLToPath(import.meta.url)), '..');
const ConfigSchema = z.object({
  compatibility_date: z.string(),
  compatibility_flags: z.array(z.string()),
  durable_objects: z.object({ bindings: z.array(z.object({ name: z.string(), class_name: z.string() })) }),
  migrations: z.array(z.object({ tag: z.string(), new_sqlite_classes: z.array(z.string()).default([]) })),
  workflows: z.array(z.object({ binding: z.string(), name: z.string(), class_name: z.string() })),
  r2_buckets: z.array(z.object({ binding: z.string(), bucket_name: z.string() })),
  queues: z.object({
    producers: z.array(z.object({ binding: z.string(), queue: z.string() })).default([]),
    consumers: z
      .array(
        z.object({
          queue: z.string(),
          max_batch_size: z.int(),
          max_batch_timeout: z.int(),
          max_retries: z.int(),
        }),
      )
      .default([]),
  }),
  analytics_engine_datasets: z.array(z.object({ binding: z.string() })),
  vars: z.record(z.string(), z.string()),
});
type Config = z.infer<typeof ConfigSchema>;

function config(env?: string): Config {
  const read: unknown = readConfig({
    config: join(root, 'wrangler.toml'),
    ...(env === undefined ? {} : { env }),
  });
  return ConfigSchema.parse(read);
}

test('production has the objects, their migrations and the other bindings of development', () => {
  const [development, production] = [config(), config('production')];
  expect(production.compatibility_date).toBe(development.compatibility_date);
  expect(production.durable_objects).toEqual(development.durable_objects);
  expect(production.migrations).toEqual(development.migrations);
  const bindingsOf = ({ workflows, r2_buckets, queues }: Config) => ({
    workflows: workflows.map(({ binding, class_name }) => [binding, class_name]),
    buckets: r2_buckets.map(({ binding }) => binding),
    queues: queues.producers.map(({ binding }) => binding),
  });
  expect(bindingsOf(production)).toEqual(bindingsOf(development));
  // What an environment has beside these is optional.
  expect(Object.keys(production.vars)).toEqual(expect.arrayContaining(Object.keys(development.vars)));
});

test('a local stack has what the configuration of development says', () => {
  const { compatibility_date, compatibility_flags, durable_objects, workflows, r2_buckets, queues } =
    config();
  expect(WORKER_PARTS).toEqual({
    compatibilityDate: compatibility_date,
    compatibilityFlags: compatibility_flags,
    durableObjects: Object.fromEntries(
      durable_objects.bindings.map(({ name, class_name }) => [name, class_name]),
    ),
    r2Buckets: Object.fromEntries(r2_buckets.map(({ binding, bucket_name }) => [binding, bucket_name])),
    queueProducers: Object.fromEntries(queues.producers.map(({ binding, queue }) => [binding, queue])),
    queueConsumers: Object.fromEntries(
      queues.consumers.map(({ queue, max_batch_size, max_batch_timeout, max_retries }) => [
        queue,
        { maxBatchSize: max_batch_size, maxBatchTimeout: max_batch_timeout, maxRetries: max_retries },
      ]),
    ),
    workflows: Object.fromEntries(
      workflows.map(({ binding, name, class_name }) => [binding, { name, className: class_name }]),
    ),
  });
});

test('each object with rows is in one migration', () => {
  const { durable_objects, migrations } = config('production');
  const made = migrations.flatMap(({ new_sqlite_classes }) => new_sqlite_classes);
  expect(made.toSorted()).toEqual(durable_objects.bindings.map(({ class_name }) => class_name).toSorted());
  expect(new Set(migrations.map(({ tag }) => tag)).size).toBe(migrations.length);
});

test('no environment names a secret in its file', () => {
  for (const { vars } of [config(), config('production')]) {
    for (const name of ['EDGE_ROOT_KEY', 'GRANT_KEY', 'RECEIPT_KEY', 'ID_SECRET', 'OPERATOR_TOKEN_SHA256']) {
      expect(vars).not.toHaveProperty(name);
    }
  }
});

test('a deploy can be tried without a network: it bundles, and names every binding', async () => {
  const out = await mkdtemp(join(tmpdir(), 'sandgate-deploy-'));
  const deploy = ['npm', 'run', '--silent', 'deploy', '--', '--dry-run', '--outdir', out];
  // A namespace of its own has no network at all.
  const { exitCode, output } = await run('unshare', ['--net', ...deploy]);
  expect(exitCode, output).toBe(0);
  expect(output).not.toMatch(/warning/i);
  const { durable_objects, workflows, r2_buckets, queues, analytics_engine_datasets } = config('production');
  const bindings = [
    ...durable_objects.bindings.map(({ name }) => name),
    ...[...workflows, ...r2_buckets, ...queues.producers, ...analytics_engine_datasets].map(
      ({ binding }) => binding,
    ),
  ];
  expect(bindings).toEqual(expect.arrayContaining(['SESSION', 'SNAPSHOTS', 'NOTICES', 'METRICS']));
  for (const name of bindings) expect(output).toContain(`env.${name} `);
  expect(await readdir(out)).toContain('index.js');
  await rm(out, { recursive: true, force: true });
}, 120_000);

function run(program: string, args: string[]): Promise<{ exitCode: number | null; output: string }> {
  const environment = { ...process.env, CI: '1', NO_COLOR: '1' };
  for (const name of Object.keys(environment))
    if (/proxy/i.test(name)) Reflect.deleteProperty(environment, name);
  const child = spawn(program, args, { cwd: root, env: environment });
  let output = '';
  const take = (chunk: Buffer): void => {
    output += chunk.toString();
  };
  child.stdout.on('data', take);
  child.stderr.on('data', take);
  return new Promise((resolve, reject) => {
    child.on('error', reject);
    child.on('close', (exitCode) => resolve({ exitCode, output }));
  });
}
