import { stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, onTestFinished, test } from 'vitest';
import { askAgent } from '../../../host-agent/local-control/client.ts';
import { serveLocalControl } from '../../../host-agent/local-control/server.ts';
import { SOCKET_NAME } from '../../../host-agent/local-control/status.ts';
import { IDLE_STATUS } from '../../fixtures/agent-status.ts';
import { temporaryFolder } from '../../scripts/temporary-folder.ts';

async function serve(dir: string): Promise<{ draining: boolean }> {
  const seen = { draining: false };
  const served = await serveLocalControl(dir, {
    status: () => ({ ...IDLE_STATUS, state: seen.draining ? 'draining' : 'running' }),
    setDraining: (draining) => {
      seen.draining = draining;
    },
  });
  if (!served.ok) throw new Error(served.detail);
  onTestFinished(() => served.value.close());
  return seen;
}

describe('the local control of an agent', () => {
  test('tells its state, drains and resumes', async () => {
    const dir = temporaryFolder();
    const seen = await serve(dir);
    expect(await askAgent(dir, 'status')).toEqual({ ok: true, value: IDLE_STATUS });
    expect(await askAgent(dir, 'drain')).toMatchObject({ ok: true, value: { state: 'draining' } });
    expect(seen.draining).toBe(true);
    expect(await askAgent(dir, 'resume')).toMatchObject({ ok: true, value: { state: 'running' } });
    expect(seen.draining).toBe(false);
  });

  test('is for root alone', async () => {
    const dir = temporaryFolder();
    await serve(dir);
    expect((await stat(join(dir, SOCKET_NAME))).mode & 0o777).toBe(0o600);
  });

  test('takes the place of a socket that a dead agent left', async () => {
    const dir = temporaryFolder();
    await writeFile(join(dir, SOCKET_NAME), '');
    await serve(dir);
    expect(await askAgent(dir, 'status')).toMatchObject({ ok: true });
  });

  test('is not found where no agent runs', async () => {
    expect(await askAgent(temporaryFolder(), 'status')).toMatchObject({ ok: false, code: 'not_found' });
  });
});
