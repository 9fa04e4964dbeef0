/** A gateway whose one host answers at once and runs nothing: what is measured with it is the edge. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Installation } from '../host-agent/setup/setup.ts';
import { type Stack, startStack } from '../scripts/development/stack.ts';
import type { Locations } from '../scripts/locations.ts';
import { enrollDouble } from '../test/fixtures/host-double/host-double.ts';
import { nodeCrypto, nodeTransport } from '../test/fixtures/host-double/node-transport.ts';

const CAPACITY = 2_000;

export interface GatewayStack {
  stack: Stack;
  stop: () => Promise<void>;
}

export async function startGatewayStack(
  places: Locations,
  installation: Installation,
): Promise<GatewayStack> {
  const stateDir = await mkdtemp(join(tmpdir(), 'sandgate-bench-gateway-'));
  const stack = await startStack({
    locations: { ...places, stateDir },
    installation,
    port: 0,
    hostAgent: false,
    bindings: { TENANT_REQUESTS_PER_MINUTE: '1000000' },
  });
  const transport = nodeTransport(stack.url, stack.keys.edge_origin);
  // Its host, in this process, takes as little of the machine as it can.
  const host = await enrollDouble(transport, await stack.operator.createEnrollmentToken(), {
    crypto: nodeCrypto,
    trustsGrants: true,
    capacity: CAPACITY,
  });
  await host.connect();
  return {
    stack,
    stop: async () => {
      host.close();
      await stack.stop();
      await rm(stateDir, { recursive: true, force: true });
    },
  };
}
