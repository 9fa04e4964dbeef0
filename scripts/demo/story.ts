/** The story of the demo: a repository with a failing test is mended in one session, and every step has a receipt. */
import { glob, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import * as z from 'zod';
import { SetupFailure } from '../../host-agent/setup/failure.ts';
import type { Execution } from '../../shared/execution.ts';
import { verifyChain } from '../../shared/receipt-verify.ts';
import type { ApiClient, SessionClient } from '../../test/e2e/client.ts';
import { gitBundle } from './git-bundle.ts';

const MODULE = 'intervals/intervals/merge.py';
/** The mistake: intervals that touch hold neighbouring numbers, so they are one interval. */
const FAULT = 'if merged and start < merged[-1][1]:';
const MENDED = 'if merged and start <= merged[-1][1]:';
const TESTS = 'python3 -m unittest 2>&1';

export interface StoryOptions {
  api: ApiClient;
  repositoryDir: string;
  print: (line: string) => void;
}

export interface StoryResult {
  /** The exit codes of the two runs of the tests. */
  testsBefore: number | null;
  testsAfter: number | null;
  /** What git says at the end. */
  log: string;
  /** The session's export, as `npm run verify` reads it. */
  receipts: Awaited<ReturnType<SessionClient['receipts']>>;
}

export async function tellStory({ api, repositoryDir, print }: StoryOptions): Promise<StoryResult> {
  const session = await api.open({ metadata: { purpose: 'demo' } });
  print(`session ${session.id} on host ${session.opened.host_id ?? '?'}`);
  const step = narrator(print);
  try {
    const bundle = await demoBundle(join(repositoryDir, 'test/fixtures/demo-repository'));
    step('put a git repository into the session with the file tool');
    mustSucceed(
      await session.file({
        operation: 'write',
        path: 'intervals.bundle',
        content: bundle.toString('base64'),
        encoding: 'base64',
      }),
    );
    print(`   intervals.bundle, ${bundle.length} bytes`);

    step('clone it');
    show(
      print,
      mustSucceed(
        await session.sh('git clone -q intervals.bundle intervals && cd intervals && git log --oneline'),
      ),
    );

    step('run its tests');
    const before = await session.sh(TESTS);
    showTests(print, before);
    if (before.exit_code !== 1)
      throw new SetupFailure(`the tests must fail at first, but exit ${before.exit_code}`);

    step('mend the fault with the file tool');
    const source = contentOf(mustSucceed(await session.file({ operation: 'read', path: MODULE })));
    if (!source.includes(FAULT)) throw new SetupFailure(`${MODULE} does not hold the line to mend`);
    const content = source.replace(FAULT, MENDED);
    mustSucceed(await session.file({ operation: 'write', path: MODULE, content }));
    show(print, mustSucceed(await session.sh('git diff --unified=0 | tail -n 2')));

    step('run the tests again');
    const after = mustSucceed(await session.sh(TESTS));
    showTests(print, after);

    step('commit');
    const committed = mustSucceed(
      await session.sh(
        "git commit -qam 'Merge intervals that touch' && git status --short && git log --oneline",
      ),
    );
    show(print, committed);

    step('use the library in the Python kernel of the session');
    const used = mustSucceed(
      await session.py(
        "import sys; sys.path.insert(0, 'intervals')\nfrom intervals import merge\nmerge([(8, 9), (1, 3), (3, 5)])",
      ),
    );
    print(`   ${used.value ?? ''}`);

    step('verify the receipt of every call');
    const receipts = await session.receipts();
    const chain = await verifyChain(receipts.receipts, receipts.keys, session.id);
    if (!chain.ok) throw new SetupFailure(`receipt ${chain.seq ?? '?'}: ${chain.code}: ${chain.detail}`);
    for (const receipt of chain.value) {
      print(
        `   ${receipt.seq}  ${receipt.tool.padEnd(6)}  ${receipt.status.padEnd(9)}  ${receipt.usage.wall_ms} ms`,
      );
    }
    return { testsBefore: before.exit_code, testsAfter: after.exit_code, log: committed.stdout, receipts };
  } finally {
    await session.delete();
  }
}

async function demoBundle(folder: string): Promise<Buffer> {
  const files = new Map<string, Uint8Array>();
  for await (const path of glob('{.gitignore,**/*.{py,md}}', { cwd: folder })) {
    files.set(path, await readFile(join(folder, path)));
  }
  return gitBundle({
    branch: 'main',
    author: 'Demo <demo@localhost>',
    message: 'Merge half-open intervals',
    atS: Date.UTC(2026, 0, 1) / 1000,
    files,
  });
}

function narrator(print: (line: string) => void): (what: string) => void {
  let count = 0;
  return (what) => {
    count += 1;
    print(`${count}. ${what}`);
  };
}

function show(print: (line: string) => void, execution: Execution): void {
  for (const line of execution.stdout.trimEnd().split('\n')) print(`   ${line}`);
}

/** Which tests failed, and the summary. */
function showTests(print: (line: string) => void, execution: Execution): void {
  const lines = execution.stdout.split('\n').filter((line) => /^(FAIL: |Ran |OK|FAILED )/.test(line));
  for (const line of lines) print(`   ${line}`);
}

function mustSucceed(execution: Execution): Execution {
  if (execution.status === 'succeeded') return execution;
  const why = execution.error?.message ?? (execution.stderr || execution.stdout);
  throw new SetupFailure(`${execution.tool_name} ended as ${execution.status}: ${why.slice(0, 500)}`);
}

function contentOf(execution: Execution): string {
  return z.object({ content: z.string(), encoding: z.literal('utf-8') }).parse(execution.structured).content;
}
