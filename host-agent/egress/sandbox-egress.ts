/** The way out of one sandbox, from its port inside to the sockets of this host. Without it a sandbox has none. */
import type { Network } from '../../shared/network.ts';
import type { GuestLink } from '../guest-link/guest-link.ts';
import type { Log } from '../logging/log.ts';
import type { HostBandwidth } from './bandwidth.ts';
import { EgressGate } from './gate.ts';
import { GuestPort } from './guest-port.ts';
import type { HostBudget } from './host-budget.ts';
import { compilePolicy } from './policy.ts';
import { EgressProxy } from './proxy.ts';
import type { EgressSettings } from './settings.ts';

/** On the guest's loopback address. */
export const PROXY_PORT = 3128;

const PROXY_URL = `http://127.0.0.1:${PROXY_PORT}`;
const NO_PROXY = 'localhost,127.0.0.1,::1';

/** What programs read to find the proxy; some know the names in upper case only, some in lower case only. */
export const EGRESS_VARIABLES: Readonly<Record<string, string>> = {
  HTTP_PROXY: PROXY_URL,
  HTTPS_PROXY: PROXY_URL,
  http_proxy: PROXY_URL,
  https_proxy: PROXY_URL,
  NO_PROXY,
  no_proxy: NO_PROXY,
  // Newer versions of Node.js heed the others with this one only.
  NODE_USE_ENV_PROXY: '1',
};

export interface SandboxNetwork {
  readonly sessionId: string;
  readonly rules: Network;
}

export interface EgressOptions {
  readonly link: GuestLink;
  readonly network: SandboxNetwork;
  readonly settings: EgressSettings;
  readonly budget: HostBudget;
  readonly bandwidth: HostBandwidth;
  readonly log: Log;
  /** The port's program as the guest sees it, where that is not the usual place. */
  readonly program?: string;
  readonly port?: number;
  /** Until it settles nothing is resolved or dialled: connections wait. */
  readonly shutUntil?: Promise<void> | undefined;
}

export interface SandboxEgress {
  readonly connections: number;
  /** Moved both ways since it was opened. */
  readonly bytes: number;
  stop(): void;
}

/** Undefined when the port could not be opened in the guest. */
export async function openEgress(options: EgressOptions): Promise<SandboxEgress | undefined> {
  const { link, network, settings, budget, log, shutUntil } = options;
  const policy = compilePolicy(network.rules);
  const { sessionId } = network;
  const gate = new EgressGate({ sessionId, policy, settings, budget, log, shutUntil });
  const bandwidth = options.bandwidth.shareOfSandbox();
  const proxy = new EgressProxy({ gate, policy, certificateAuthorities: settings.certificateAuthorities });
  const port = await GuestPort.open({
    link,
    port: options.port ?? PROXY_PORT,
    program: options.program,
    bandwidth,
    onConnection: (connection) => proxy.accept(connection),
  });
  if (port === undefined) {
    bandwidth.close();
    gate.stop();
    return undefined;
  }
  return {
    get connections() {
      return port.connections;
    },
    get bytes() {
      return gate.bytes;
    },
    stop: () => {
      port.stop();
      bandwidth.close();
      gate.stop();
    },
  };
}
