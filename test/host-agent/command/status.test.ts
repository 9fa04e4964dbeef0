/** `status` as it is typed, of an agent that is not linked. */
import { execFile } from 'node:child_process';
import { mkdirSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { expect, onTestFinished, test } from 'vitest';
import { layoutOf } from '../../../host-agent/command/layout.ts';
import { serveLocalControl } from '../../../host-agent/local-control/server.ts';
import type { AgentStatus } from '../../../host-agent/local-control/status.ts';
import { IDLE_STATUS } from '../../fixtures/agent-status.ts';
import { temporaryFolder } from '../../scripts/temporary-folder.ts';

const COMMAND = fileURLToPath(new URL('../../../host-agent/sandgate-host.ts', import.meta.url));
const AWAY: AgentStatus = { ...IDLE_STATUS, edge_connected: false };

async function statusOf(now: AgentStatus): Promise<string> {
  const root = temporaryFolder();
  const { hostDir } = layoutOf(root);
  mkdirSync(hostDir, { recursive: true });
  const served = await serveLocalControl(hostDir, { status: () => now, setDraining: () => {} });
  if (!served.ok) throw new Error(served.detail);
  onTestFinished(() => served.value.close());
  const ran = promisify(execFile)(process.execPath, [COMMAND, 'status', `--root=${root}`]);
  return ran.then(
    () => 'exit code 0',
    (failed: { code: number; stdout: string }) => `exit code ${failed.code}\n${failed.stdout}`,
  );
}

test('a host that its edge refuses shows the words of the edge, and how it comes back', async () => {
  const edge_refusal = { code: 'unauthenticated', detail: 'the host was revoked' };
  const said = await statusOf({ ...AWAY, edge_refusal });
  expect(said).toMatch(/^exit code 1$/m);
  expect(said).toMatch(/^refused +unauthenticated: the host was revoked$/m);
  expect(said).toMatch(/^ +→ .*sandgate-host enroll <edge URL> <token>$/m);
});

test('a host that only is not linked shows no refusal', async () => {
  const said = await statusOf(AWAY);
  expect(said).toContain('not connected');
  expect(said).not.toContain('refused');
});
