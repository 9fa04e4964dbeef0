/** The agent as it is started: what it refuses, in one line each. */
import { execFileSync, spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { lockState } from '../../host-agent/journal/state-lock.ts';
import { digestLibraryPath } from '../fixtures/digest-library.ts';
import { makeFakeRunsc } from '../fixtures/fake-runsc.ts';
import { addImage } from '../fixtures/stored-image.ts';
import { temporaryFolder } from '../scripts/temporary-folder.ts';

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
      SANDGATE_STREAM_KEEPER: '/absent/stream-keeper',
      ...environment,
    },
  });
  return { code: status, stderr };
}

function fill(path: string): void {
  try {
    writeFileSync(path, Buffer.alloc(1024 * 1024));
  } catch {
    // As much as there was room for was written.
  }
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

  test('F27 on a state folder that cannot be written, where there is no room, and where there is a file', () => {
    const made = [
      ['ro,size=64k', () => undefined, 'read-only file system'],
      ['size=16k', (dir: string) => fill(join(dir, 'filler')), 'no space left on device'],
      ['size=64k', (dir: string) => writeFileSync(join(dir, 'host'), ''), 'file already exists'],
    ] as const;
    for (const [options, prepare, reason] of made) {
      execFileSync('mount', ['-t', 'tmpfs', '-o', options, 'tmpfs', stateDir]);
      try {
        prepare(stateDir);
        const { code, stderr } = start();
        expect(code).toBe(1);
        expect(stderr).toBe(`sandgate host-agent: ${join(stateDir, 'host')} cannot be written: ${reason}\n`);
      } finally {
        execFileSync('umount', [stateDir]);
      }
    }
  });

  test('F27 only after it removed what a former agent left, which may be what fills the disk', async () => {
    await using runsc = await makeFakeRunsc({ list: [{ stdout: 'null' }] });
    const installed = temporaryFolder();
    addImage(installed, 'python', `sha256:${'a'.repeat(64)}`, '2026-01-01T00:00:00Z');
    writeFileSync(join(installed, 'supervisor'), '');
    execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=256k', 'tmpfs', stateDir]);
    try {
      const bundle = join(stateDir, 'host', 'bundles', 'sbx-dead');
      mkdirSync(bundle, { recursive: true });
      fill(join(bundle, 'storage'));
      const complete = {
        SANDGATE_RUNSC: runsc.path,
        SANDGATE_IMAGES_DIR: installed,
        SANDGATE_GUEST_DIR: installed,
        SANDGATE_LOG_LEVEL: 'silent',
      };
      expect(start(complete)).toEqual({
        code: 1,
        stderr: 'sandgate host-agent: this host is not enrolled and has no SANDGATE_ENROLLMENT_TOKEN\n',
      });
      expect(existsSync(bundle)).toBe(false);
      const refused = `sandgate host-agent: ${join(stateDir, 'host')} cannot be written: `;
      fill(join(stateDir, 'filler'));
      expect(start(complete).stderr).toBe(`${refused}no space left on device\n`);
      execFileSync('mount', ['-o', 'remount,ro', stateDir]);
      expect(start(complete).stderr).toBe(`${refused}read-only file system\n`);
    } finally {
      execFileSync('umount', [stateDir]);
    }
  });

  test('on a state folder that another agent uses', async () => {
    const held = await lockState(join(stateDir, 'host'));
    const { code, stderr } = start();
    expect(code).toBe(1);
    expect(stderr).toBe(`sandgate host-agent: another host agent uses ${join(stateDir, 'host')}\n`);
    if (held.ok) await held.value.release();
  });
});
