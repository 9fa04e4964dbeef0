/** A host of the tests that dies: its links end, and the edge gives it up. */
import { runDurableObjectAlarm } from 'cloudflare:test';
import { env } from 'cloudflare:workers';
import { expect, vi } from 'vitest';
import type { HostDouble } from '../../fixtures/host-double/host-double.ts';

export async function dies(host: HostDouble): Promise<void> {
  const stub = env.HOST.get(env.HOST.idFromName(host.hostId));
  host.close();
  await expect.poll(async () => (await env.HOST.getByName(host.hostId).status()).connected).toBe(false);
  vi.useFakeTimers({ toFake: ['Date'], now: Date.now() + 46_000 });
  await runDurableObjectAlarm(stub);
  await runDurableObjectAlarm(stub);
  vi.useRealTimers();
}
