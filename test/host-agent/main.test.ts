/** The agent as it is started: what it refuses, in one line each. */
import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { lockState } from '../../host-agent/journal/state-lock.ts';
import { digestLibraryPath } from '../fixtures/digest-library.ts';

const MAIN = fileURLToPath(new URL('../../host-agent/main.ts', import.meta.url));

let stateDir: string;
beforeEach(() => {
  stateDir = mkdtempSync(join(tmpdir(), 'sandgate-main-'));
});
afterEach(() => rmSync(stateDir, { recursive: true }));

function start(environment: Record<string, string> = {}): { code: number | null; stderr: string } {
  const { status, stderr } = spawnSync(process.execPath, [MAIN], {
    encoding: 'utf8',
    env: {
      PATH: process.env.PATH,
      SANDGATE_STATE_DIR: stateDir,
      SANDGATE_EDGE_URL: 'http://127.0.0.1:9',
      SANDGATE_RUNSC: '/nonexistent/runsc',
      SANDGATE_IMAGES_DIR: stateDir,
      SANDGATE_GUEST_DIR: stateDir,
      SANDGATE_DIGEST_LIBRARY: digestLibraryPath,
      ...environment,
    },
  });
  return { code: status, stderr };
}

describe.skipIf(process.getuid?.() !== 0)('the agent refuses to start, with one line', () => {
  test('without runsc: there is no other way to run guest code', () => {
    const { code, stderr } = start();
    expect(code).toBe(1);
    expect(stderr).toMatch(/^sandgate host-agent: .*runsc.*\n$/);
  });

  test('without the address of an edge', () => {
    const { code, stderr } = start({ SANDGATE_EDGE_URL: '' });
    expect(code).toBe(1);
    expect(stderr).toMatch(/^sandgate host-agent: SANDGATE_EDGE_URL: .*\n$/);
  });

  test('on a state folder that another agent uses', async () => {
    const held = await lockState(join(stateDir, 'host'));
    const { code, stderr } = start();
    expect(code).toBe(1);
    expect(stderr).toBe(`sandgate host-agent: another host agent uses ${join(stateDir, 'host')}\n`);
    if (held.ok) await held.value.release();
  });
});
