import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { fetchGvisorRunsc, gvisorUri, parseSha512File } from '../../../host-agent/setup/runsc-gvisor.ts';
import { temporaryFolder } from '../../scripts/temporary-folder.ts';

const PROGRAM = 'runsc of gVisor';
const SHA512 = createHash('sha512').update(PROGRAM).digest('hex');

/** A release that serves these texts; the network is not touched. */
function release(listed: string, program: string): typeof fetch {
  return async (input) => {
    const uri = new Request(input).url;
    if (uri.endsWith('/runsc.sha512')) return new Response(listed);
    if (uri.endsWith('/runsc')) return new Response(program);
    return new Response('', { status: 404 });
  };
}

function download(get: typeof fetch, expectedSha512?: string) {
  const workDir = temporaryFolder();
  const target = join(workDir, 'cache/runsc');
  mkdirSync(dirname(target));
  return {
    target,
    done: fetchGvisorRunsc({ architecture: 'amd64', workDir, target, expectedSha512, fetch: get }, () => {}),
  };
}

describe("gVisor's own release", () => {
  test('a program with the listed digest is taken, and the digest kept beside it', async () => {
    const { target, done } = download(release(`${SHA512}  runsc\n`, PROGRAM));
    await done;
    expect(readFileSync(target, 'utf8')).toBe(PROGRAM);
    expect(parseSha512File(readFileSync(`${target}.sha512`, 'utf8')).hex).toBe(SHA512);
  });

  test('a program with another digest is refused', async () => {
    const { target, done } = download(release(`${SHA512}  runsc\n`, `${PROGRAM}!`));
    await expect(done).rejects.toThrow(`the runsc program is not the pinned file: expected sha512 ${SHA512}`);
    expect(existsSync(target)).toBe(false);
  });

  test('a release that lists another digest than the operator expects is refused', async () => {
    const { done } = download(release(`${SHA512}  runsc\n`, PROGRAM), '0'.repeat(128));
    await expect(done).rejects.toThrow(`SANDGATE_RUNSC_SHA512 expects ${'0'.repeat(128)}`);
  });

  test('a digest list that is not one is refused', async () => {
    const { done } = download(release('<html>moved</html>', PROGRAM));
    await expect(done).rejects.toThrow('names no digest for runsc');
  });

  test('an answer that is not 200 is one line with its status', async () => {
    const { done } = download(async () => new Response('', { status: 503 }));
    await expect(done).rejects.toThrow(/^cannot download .*runsc\.sha512: HTTP 503$/);
  });

  test('an architecture without a release is refused by name', () => {
    expect(() => gvisorUri('riscv64')).toThrow('gVisor has no release for architecture riscv64');
  });
});
