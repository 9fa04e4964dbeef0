/** `npm run demo`: mends a small repository in one session, on the stack that runs already or on one of its own. */
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { runMain } from '../host-agent/setup/failure.ts';
import { setUp } from '../host-agent/setup/setup.ts';
import { terminalProgress } from '../host-agent/setup/step.ts';
import { ApiClient } from '../test/e2e/client.ts';
import { tellStory } from './demo/story.ts';
import { type DevFile, DevFileSchema } from './development/dev-file.ts';
import { startStack } from './development/stack.ts';
import { locations } from './locations.ts';

const PROBE_TIMEOUT_MS = 2_000;

await runMain(async () => {
  const places = locations(process.env);
  const running = await runningStack(places.stateDir);
  if (running !== undefined) {
    console.log(`Sandgate: demo on ${running.url}\n`);
    await tell(running);
    return 0;
  }
  console.log('Sandgate: set-up');
  const progress = terminalProgress(process.stdout);
  const installation = await setUp(places, process.env, progress);
  const stateDir = await mkdtemp(join(tmpdir(), 'sandgate-demo-'));
  try {
    const stack = await progress.step('gateway and host agent', async () => ({
      value: await startStack({ locations: { ...places, stateDir }, installation, port: 0 }),
      did: 'running',
    }));
    try {
      console.log('Sandgate: demo\n');
      await tell({ url: stack.url, token: await stack.token() });
    } finally {
      await stack.stop();
    }
  } finally {
    await rm(stateDir, { recursive: true, force: true });
  }
  return 0;

  async function tell({ url, token }: Pick<DevFile, 'url' | 'token'>): Promise<void> {
    const told = await tellStory({
      api: new ApiClient(url, token),
      repositoryDir: places.repositoryDir,
      print: (line) => console.log(line),
    });
    const file = join(tmpdir(), `sandgate-demo-${told.receipts.session_id}.json`);
    await writeFile(file, `${JSON.stringify(told.receipts, null, 2)}\n`);
    console.log(
      `\nRed, mended, green; ${told.receipts.receipts.length} receipts verified. To verify them again:`,
    );
    console.log(`  npm run verify -- ${file}`);
  }
});

/** What `dev.json` names, when it answers. */
async function runningStack(stateDir: string): Promise<DevFile | undefined> {
  const text = await readFile(join(stateDir, 'dev.json'), 'utf8').catch(() => undefined);
  if (text === undefined) return undefined;
  const file = DevFileSchema.safeParse(JSON.parse(text));
  if (!file.success) return undefined;
  const answer = await fetch(`${file.data.url}/v1/tools`, {
    headers: { authorization: `Bearer ${file.data.token}` },
    signal: AbortSignal.timeout(PROBE_TIMEOUT_MS),
  }).catch(() => undefined);
  return answer?.ok === true ? file.data : undefined;
}
