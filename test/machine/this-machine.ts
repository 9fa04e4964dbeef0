/** The very machine that the tests run on: one that was made for them. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { hostname } from 'node:os';
import type { Ended } from '../fixtures/private-machine.ts';

/** Of the machines that `npm run test:machine` makes. */
const HOSTNAME = 'sandgate-test-machine';

export class ThisMachine {
  /** All is on one disk, and slow. */
  readonly copyFlags: readonly string[] = ['-a', '--link'];

  /** Fails on any other machine: what is done here, a machine that somebody uses must not suffer. */
  static open(): ThisMachine {
    if (hostname() !== HOSTNAME)
      throw new Error('this is no machine for tests: npm run test:machine makes one');
    if (!existsSync('/run/systemd/system')) throw new Error('systemd does not run this machine');
    return new ThisMachine();
  }

  async run(argv: readonly string[]): Promise<Ended> {
    const [file = '', ...rest] = argv;
    const child = spawn(file, rest, { cwd: '/', stdio: ['ignore', 'pipe', 'pipe'] });
    const texts = { stdout: '', stderr: '' };
    child.stdout.on('data', (chunk: Buffer) => (texts.stdout += String(chunk)));
    child.stderr.on('data', (chunk: Buffer) => (texts.stderr += String(chunk)));
    const [code] = await once(child, 'close');
    return { code: typeof code === 'number' ? code : null, ...texts };
  }

  /** It ends with the tests. */
  async stop(): Promise<void> {}
}
