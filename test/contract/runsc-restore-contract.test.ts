/** What is so before the first instruction of a sandbox that goes on: its identity, its clocks, its limits, what is random. */
import { setTimeout as wait } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import * as z from 'zod';
import type { Sandbox } from '../../host-agent/sandbox/port.ts';
import {
  checkpoint,
  differFromTwoCopies,
  moved,
  noOutput,
  restore,
  start,
  TEST_TIMEOUT_MS,
  useCheckpointHosts,
} from './checkpoint-hosts.ts';
import { python, shell } from './subject.ts';

/** How long nothing of a sandbox is there, and by how much its clocks may be wrong afterwards. */
const STAND_S = 4;
const CLOCK_TOLERANCE_S = 2;

useCheckpointHosts();

/** Sources of random values by name, each as an expression of Python. */
const RANDOM_VALUES = {
  'os.urandom': 'os.urandom(16).hex()',
  'random.random': 'random.random()',
  'uuid.uuid4': 'uuid.uuid4().hex',
  'secrets.token_hex': 'secrets.token_hex(16)',
  'tempfile.mktemp': 'tempfile.mktemp()',
  'ssl.RAND_bytes': 'ssl.RAND_bytes(16).hex()',
};

/** One value of each kind. */
async function drawn(sandbox: Sandbox): Promise<Record<string, string>> {
  const values = Object.entries(RANDOM_VALUES).map(([kind, expression]) => `'${kind}': str(${expression})`);
  const imports = 'import json, os, random, secrets, ssl, tempfile, uuid';
  const { stdout, error } = await python(sandbox, `${imports}\nprint(json.dumps({${values.join()}}))`);
  expect(error).toBeNull();
  return z.record(z.string(), z.string()).parse(JSON.parse(stdout));
}

describe('a sandbox that goes on from its checkpoint', () => {
  it('R44: differs from its copies in each kind of random value, and in what it is', {
    timeout: TEST_TIMEOUT_MS,
  }, async () => {
    const all = await differFromTwoCopies(await start(), drawn);
    const identities = await Promise.all(all.map((one) => shell(one, 'cat /run/sandgate/sandbox_id')));
    expect(identities.map(({ stdout }) => stdout)).toEqual(all.map(({ id }) => `${id}\n`));
    const machines = await Promise.all(all.map((one) => shell(one, 'cat /etc/machine-id')));
    for (const { stdout } of machines) expect(stdout).toMatch(/^[0-9a-f]{32}\n$/);
    expect(new Set(machines.map(({ stdout }) => stdout)).size).toBe(all.length);
    await Promise.all(all.map((one) => one.destroy()));
  });

  it('R44: draws on from its own seed where it was copied, and its copies do not', {
    timeout: TEST_TIMEOUT_MS,
  }, async () => {
    const sandbox = await start();
    await python(sandbox, 'import random; random.seed(1); common = random.random()');
    const taken = await checkpoint(sandbox);
    const copy = await restore(1, taken, 1, noOutput, true);
    await taken.goOn();
    const draw = '(common, random.random())';
    expect((await python(sandbox, draw)).value).toBe('(0.13436424411240122, 0.8474337369372327)');
    const inCopy = (await python(copy.sandbox, draw)).value;
    expect(inCopy).toMatch(/^\(0\.13436424411240122, /);
    expect(inCopy).not.toContain('0.8474337369372327');
    await Promise.all([sandbox, copy.sandbox].map((one) => one.destroy()));
  });

  it('shares its hash seed with its copies, whose dictionaries are made by it, and with no other sandbox', {
    timeout: TEST_TIMEOUT_MS,
  }, async () => {
    const [sandbox, other] = [await start(), await start()];
    await python(sandbox, 'held = {str(number): number for number in range(1000)}');
    const taken = await checkpoint(sandbox);
    const copy = await restore(1, taken, 1, noOutput, true);
    await taken.goOn();
    const hashOf = async (one: Sandbox): Promise<string | null> =>
      (await python(one, "hash('sandgate')")).value;
    const hash = await hashOf(sandbox);
    expect(hash).toMatch(/^-?\d+$/);
    expect(await hashOf(copy.sandbox)).toBe(hash);
    expect((await python(copy.sandbox, 'sum(held[str(number)] for number in range(1000))')).value).toBe(
      '499500',
    );
    expect(await hashOf(other)).not.toBe(hash);
    await Promise.all([sandbox, copy.sandbox, other].map((one) => one.destroy()));
  });

  it('keeps the seed that it was given where it only moves, and draws anew from the kernel', {
    timeout: TEST_TIMEOUT_MS,
  }, async () => {
    const sandbox = await start();
    await python(sandbox, 'import os, random; random.seed(42); numbers = [random.random()]; os.urandom(8)');
    const taken = await checkpoint(sandbox);
    const next = (await restore(1, taken, 1, noOutput)).sandbox;
    await taken.goOn();
    const numbers = 'numbers.append(random.random()); numbers';
    expect((await python(next, numbers)).value).toBe('[0.6394267984578837, 0.025010755222666936]');
    // The next draw of both, from one state: what is equal here would have been in the checkpoint.
    const [here, there] = await Promise.all(
      [sandbox, next].map(async (one) => (await python(one, 'os.urandom(8).hex()')).value),
    );
    expect(here).toMatch(/^'[0-9a-f]{16}'$/);
    expect(there).toMatch(/^'[0-9a-f]{16}'$/);
    expect(there).not.toBe(here);
    await Promise.all([sandbox, next].map((one) => one.destroy()));
  });

  it('has the clock of its host from the first moment on, and its monotonic clock has gone on by as much', {
    timeout: TEST_TIMEOUT_MS,
  }, async () => {
    const sandbox = await start();
    await python(sandbox, 'import time; wall, monotonic = time.time(), time.monotonic()');
    const taken = await checkpoint(sandbox);
    await taken.end();
    // Nothing is waited for here: time has to go by for a clock to be behind.
    await wait(STAND_S * 1_000);
    const notBeforeS = Date.now() / 1_000;
    const next = (await restore(1, taken, 1, noOutput)).sandbox;
    const { stdout, error } = await python(
      next,
      'now = time.time(), time.monotonic()\nprint(now[0], now[0] - wall, now[1] - monotonic)',
    );
    const notAfterS = Date.now() / 1_000;
    expect(error).toBeNull();
    const [nowS = Number.NaN, wallS = Number.NaN, monotonicS = Number.NaN] = stdout.split(' ').map(Number);
    expect(nowS).toBeGreaterThan(notBeforeS - CLOCK_TOLERANCE_S);
    expect(nowS).toBeLessThan(notAfterS + CLOCK_TOLERANCE_S);
    expect(monotonicS).toBeGreaterThan(STAND_S - CLOCK_TOLERANCE_S);
    expect(Math.abs(monotonicS - wallS)).toBeLessThan(CLOCK_TOLERANCE_S);
    await next.destroy();
  });

  it('is kept to its limits of memory and processes', { timeout: TEST_TIMEOUT_MS }, async () => {
    const sandbox = await moved(await start(), 1);
    const threads = await python(
      sandbox,
      `
import threading
over = threading.Event(); count = 0
try:
    while count < 1000: threading.Thread(target=over.wait).start(); count += 1
except RuntimeError: pass
over.set(); count`,
    );
    expect(threads.error).toBeNull();
    expect(Number(threads.value)).toBeLessThan(400);
    const filled = await python(
      sandbox,
      'x = bytearray(2_000_000_000)\nfor i in range(0, len(x), 4096): x[i] = 1',
    );
    expect(filled.status).toBe('oom');
    await sandbox.destroy();
  });
});
