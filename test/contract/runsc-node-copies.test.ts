/** Copies of a sandbox with a JavaScript kernel on real gVisor: what each of them draws is its own. */
import { describe, expect, it } from 'vitest';
import * as z from 'zod';
import type { Sandbox } from '../../host-agent/sandbox/port.ts';
import { differFromTwoCopies, start, TEST_TIMEOUT_MS, useCheckpointHosts } from './checkpoint-hosts.ts';
import { node } from './subject.ts';

useCheckpointHosts('node');

/** Sources of random values by name, each as an expression of JavaScript. */
const RANDOM_VALUES = {
  'Math.random': 'Math.random()',
  'crypto.randomBytes': "crypto.randomBytes(16).toString('hex')",
  'crypto.randomUUID': 'crypto.randomUUID()',
  'crypto.randomInt': 'crypto.randomInt(2 ** 47)',
  'crypto.getRandomValues': 'crypto.webcrypto.getRandomValues(new Uint32Array(4)).join()',
  'crypto.generateKeyPairSync': "crypto.generateKeyPairSync('ed25519').publicKey.export({ format: 'jwk' }).x",
  'crypto.randomBytes of another thread':
    "await new Promise((done, fail) => crypto.randomBytes(16, (error, bytes) => (error ? fail(error) : done(bytes.toString('hex')))))",
};

/** One value of each kind. */
async function drawn(sandbox: Sandbox): Promise<Record<string, string>> {
  const values = Object.entries(RANDOM_VALUES).map(
    ([kind, expression]) => `'${kind}': String(${expression})`,
  );
  const { stdout, error } = await node(
    sandbox,
    `var crypto = require('node:crypto');\nconsole.log(JSON.stringify({ ${values.join(', ')} }))`,
  );
  expect(error).toBeNull();
  return z.record(z.string(), z.string()).parse(JSON.parse(stdout));
}

describe('a JavaScript kernel', () => {
  it('R44: differs from its copies in each kind of random value, at once', {
    timeout: TEST_TIMEOUT_MS,
  }, async () => {
    const all = await differFromTwoCopies(await start(), drawn);
    await Promise.all(all.map((one) => one.destroy()));
  });
});
