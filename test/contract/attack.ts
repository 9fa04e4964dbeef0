/** An attacker and its victim: what a test of one resource has in common with the others. */
import { afterAll, beforeAll, expect } from 'vitest';
import type { Sandbox } from '../../host-agent/sandbox/port.ts';
import type { ResourceLimits } from '../../shared/session.ts';
import { STUCK_MS } from '../patience.ts';
import { type GetSubject, python, shell, startSandbox } from './subject.ts';

export interface Attacks {
  attack: (limits: Partial<ResourceLimits>, work: (attacker: Sandbox) => Promise<void>) => Promise<void>;
  victim: () => Sandbox;
}

/** Within a `describe`: its attacks share one victim. */
export function withVictim(subject: GetSubject): Attacks {
  let victim: Sandbox;
  beforeAll(async () => {
    victim = await startSandbox(subject());
    await python(victim, 'kept = 1');
  });
  afterAll(() => victim.destroy());

  /** Runs the attack in a sandbox of its own while the victim works on, and looks at both afterwards. */
  const attack = async (
    limits: Partial<ResourceLimits>,
    work: (attacker: Sandbox) => Promise<void>,
  ): Promise<void> => {
    const attacker = await startSandbox(subject(), limits);
    let over = false;
    const attacking = work(attacker).finally(() => {
      over = true;
    });
    let calls = 0;
    const living = (async (): Promise<void> => {
      for (; !over || calls === 0; calls += 1) {
        const sinceMs = performance.now();
        expect(await python(victim, 'kept += 1; kept > 1')).toMatchObject({
          status: 'succeeded',
          value: 'True',
        });
        expect(performance.now() - sinceMs).toBeLessThan(STUCK_MS);
        await new Promise((resolve) => setTimeout(resolve, 50));
      }
    })();
    try {
      await Promise.all([attacking, living]);
    } finally {
      await attacker.destroy();
    }
    expect(await subject().tracesOf(attacker.id)).toEqual([]);
  };
  return { attack, victim: () => victim };
}

export const lives = async (sandbox: Sandbox): Promise<void> => {
  expect((await shell(sandbox, 'echo $(echo alive)')).stdout).toBe('alive\n');
  expect((await python(sandbox, '6 * 7')).value).toBe('42');
};

/** The value of `met` after the code, which must not have cost the kernel. */
export const met = async (sandbox: Sandbox, code: string, timeoutMs = 60_000): Promise<string | null> => {
  const result = await python(sandbox, `${code}\nmet`, { timeoutMs });
  expect(result, result.error?.traceback).toMatchObject({ status: 'succeeded', stateLost: false });
  return result.value;
};

export const errnoOf = (body: string): string =>
  [
    'import errno, os',
    'met = None',
    'try:',
    ...body.split('\n').map((line) => `  ${line}`),
    'except OSError as error: met = errno.errorcode[error.errno]',
  ].join('\n');
