/** Against a listener as systemd has it: a datagram socket that sees who sends. */
import { spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { describe, expect, onTestFinished, test } from 'vitest';
import { serviceManager } from '../../../host-agent/watchdog/service-manager.ts';
import { temporaryFolder } from '../../scripts/temporary-folder.ts';

const canNotify = existsSync('/usr/bin/systemd-notify');
const LISTENER = `
use Socket;
socket(my $s, AF_UNIX, SOCK_DGRAM, 0) or die; bind($s, pack_sockaddr_un($ARGV[0])) or die;
$| = 1; print "listening\\n";
while (defined(recv($s, my $text, 4096, 0))) { $text =~ s/\\n/ /g; print "$text\\n"; }
`;

async function listener(): Promise<{ path: string; next: () => Promise<string> }> {
  const path = join(temporaryFolder(), 'notify');
  const child = spawn('perl', ['-e', LISTENER, path], { stdio: ['ignore', 'pipe', 'inherit'] });
  onTestFinished(() => void child.kill());
  const lines = createInterface(child.stdout)[Symbol.asyncIterator]();
  const next = async (): Promise<string> => String((await lines.next()).value).trim();
  expect(await next()).toBe('listening');
  return { path, next };
}

describe('the service manager', () => {
  test.skipIf(!canNotify)(
    'hears that the agent is ready, then that it lives, then that it stops',
    async () => {
      const { path, next } = await listener();
      const service = serviceManager({ NOTIFY_SOCKET: path, WATCHDOG_USEC: '600000' });
      await service.ready();
      expect(await next()).toBe('READY=1');
      expect(await next()).toBe('WATCHDOG=1');
      expect(await next()).toBe('WATCHDOG=1');
      await service.stopping();
      for (;;) {
        const line = await next();
        if (line === 'STOPPING=1') break;
        expect(line).toBe('WATCHDOG=1');
      }
    },
  );

  test('is not missed where there is none', async () => {
    const service = serviceManager({});
    await service.ready();
    await service.stopping();
  });
});
