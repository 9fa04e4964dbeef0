/** The gateway alone: a whole execute with a host that answers at once, against a plain Hono route of the same Worker. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Installation } from '../host-agent/setup/setup.ts';
import { startStack } from '../scripts/development/stack.ts';
import type { Locations } from '../scripts/locations.ts';
import { enrollDouble } from '../test/fixtures/host-double/host-double.ts';
import { nodeCrypto, nodeTransport } from '../test/fixtures/host-double/node-transport.ts';
import { Api } from './api.ts';
import { compare } from './calls.ts';
import { timeInRounds } from './rounds.ts';
import type { Line } from './table.ts';

const ROUNDS = 400;
const WARM_UP_ROUNDS = 300;

export async function measureGateway(places: Locations, installation: Installation): Promise<Line> {
  const stateDir = await mkdtemp(join(tmpdir(), 'sandgate-bench-gateway-'));
  const stack = await startStack({
    locations: { ...places, stateDir },
    installation,
    port: 0,
    hostAgent: false,
    bindings: { TENANT_REQUESTS_PER_MINUTE: '1000000' },
  });
  const transport = nodeTransport(stack.url, stack.keys.edge_origin);
  // What is measured is the edge: its host, in this process, takes as little of the machine as it can.
  const host = await enrollDouble(transport, await stack.operator.createEnrollmentToken(), {
    crypto: nodeCrypto,
    trustsGrants: true,
  });
  const api = new Api(stack.url, await stack.token());
  try {
    await host.connect();
    const { session_id } = await api.createSession();
    const [execute, plain] = await timeInRounds(
      [
        {
          name: 'gateway alone, execute',
          run: async () => {
            await api.execute(session_id, 'python', { code: '1' });
          },
        },
        { name: 'plain Hono route', run: () => api.plain() },
      ],
      { rounds: ROUNDS, warmUpRounds: WARM_UP_ROUNDS },
    );
    return compare(execute, plain, { atMost: 3 });
  } finally {
    await api.close();
    host.close();
    await stack.stop();
    await rm(stateDir, { recursive: true, force: true });
  }
}
