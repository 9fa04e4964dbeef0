import { spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdir, writeFile } from 'node:fs/promises';
import { dirname } from 'node:path';
import { describe, expect, test } from 'vitest';
import { insideRoot, layoutOf } from '../../../host-agent/command/layout.ts';
import { AGENT_NODE_FLAGS } from '../../../host-agent/command/node-flags.ts';
import {
  FIRST_SETTINGS,
  readSettings,
  withSettings,
  writeSettings,
} from '../../../host-agent/command/settings.ts';
import { unitText } from '../../../host-agent/command/unit.ts';
import { temporaryFolder } from '../../scripts/temporary-folder.ts';

/** What is left is what making sandboxes takes: root, mounts, namespaces, control groups, tracing, the network. */
const MAX_EXPOSURE = 4.3;
const ANALYZE = '/usr/bin/systemd-analyze';

function unit(root: string): string {
  const layout = layoutOf(root);
  return unitText(layout, {
    runscPath: `${layout.cacheDir}/runsc/runsc`,
    imagesDir: layout.imagesDir,
    guestDir: `${layout.cacheDir}/guest`,
    digestLibrary: `${layout.cacheDir}/digest/sha256.node`,
    streamKeeperPath: `${layout.cacheDir}/stream-keeper/stream-keeper`,
  });
}

describe('the systemd unit', () => {
  test('names paths as the machine sees them, whatever root it was written below', () => {
    expect(unit('/mnt/other')).toBe(unit('/'));
    expect(unit('/')).toContain(
      `ExecStart=/var/lib/sandgate/program/node ${AGENT_NODE_FLAGS.join(' ')} /var/lib/sandgate/program/host-agent/main.ts`,
    );
  });

  test('gives a stop more time than the agent takes to drain', () => {
    const seconds = (pattern: RegExp): number => Number(pattern.exec(unit('/'))?.[1]);
    expect(seconds(/^TimeoutStopSec=(\d+)$/m)).toBeGreaterThanOrEqual(
      seconds(/SANDGATE_DRAIN_TIMEOUT_S=(\d+)/) + 30,
    );
  });

  test('tells the agent apart that another one follows from one that stops', () => {
    const signals = unit('/').match(/^.*KillSignal=.*$/gm);
    expect(signals).toEqual(['RestartKillSignal=SIGUSR2']);
  });

  test.skipIf(!existsSync(ANALYZE))('is as closed as a host of sandboxes can be', async () => {
    const layout = layoutOf(temporaryFolder());
    await mkdir(dirname(layout.unitPath), { recursive: true });
    await writeFile(layout.unitPath, unit('/'));
    const { stdout, stderr } = spawnSync(
      ANALYZE,
      ['security', '--offline=true', '--no-pager', layout.unitPath],
      { encoding: 'utf8' },
    );
    // A key that systemd does not know is a warning here.
    expect(stderr).not.toMatch(/Unknown|Failed to parse|Invalid/);
    const exposure = Number(/Overall exposure level for \S+: (\d+\.\d+)/.exec(stdout)?.[1]);
    expect(exposure).toBeGreaterThan(0);
    expect(exposure).toBeLessThanOrEqual(MAX_EXPOSURE);
  });
});

describe('settings', () => {
  test('are set without touching what an operator wrote', () => {
    const text = '# mine\nSANDGATE_CAPACITY=3\nSANDGATE_EDGE_URL=https://old.example\n';
    expect(withSettings(text, { SANDGATE_EDGE_URL: 'https://new.example' })).toBe(
      '# mine\nSANDGATE_CAPACITY=3\nSANDGATE_EDGE_URL=https://new.example\n',
    );
  });

  test('begin with metrics on loopback, and survive a second install', async () => {
    const path = `${temporaryFolder()}/host.env`;
    await writeSettings(path, {});
    expect(await readSettings(path)).toEqual({ SANDGATE_METRICS_PORT: '9464' });
    await writeSettings(path, { SANDGATE_EDGE_URL: 'https://edge.example' });
    await writeSettings(path, {});
    expect(await readSettings(path)).toEqual({
      SANDGATE_METRICS_PORT: '9464',
      SANDGATE_EDGE_URL: 'https://edge.example',
    });
    expect(FIRST_SETTINGS).toContain('# SANDGATE_CAPACITY');
  });
});

test('a path outside of the root stays as it is', () => {
  expect(insideRoot(layoutOf('/mnt'), '/mnt/var/lib')).toBe('/var/lib');
  expect(insideRoot(layoutOf('/mnt'), '/mntx/var')).toBe('/mntx/var');
  expect(insideRoot(layoutOf('/'), '/var/lib')).toBe('/var/lib');
});
