/** The host agent as a supervised child. */
import { createHash } from 'node:crypto';
import { join } from 'node:path';
import { AGENT_NODE_FLAGS } from '../../host-agent/command/node-flags.ts';
import type { Installation } from '../../host-agent/setup/setup.ts';
import type { Locations } from '../locations.ts';
import { removeAgentRemains } from './agent-remains.ts';
import { SupervisedChild } from './supervised-child.ts';

export type HostAgentChildOptions = {
  locations: Locations;
  installation: Installation;
  edgeUrl: string;
  edgeOrigin: string;
  enrollmentToken: string | undefined;
  environment: NodeJS.ProcessEnv;
  onRestart: (reason: string) => void;
};

export function hostAgentChild(options: HostAgentChildOptions): SupervisedChild {
  const { locations } = options;
  return new SupervisedChild({
    name: 'host agent',
    args: [...AGENT_NODE_FLAGS, join(locations.repositoryDir, 'host-agent/main.ts')],
    environment: environmentOf(options),
    input: '',
    logPath: join(locations.stateDir, 'logs/host-agent.log'),
    // What a person's Ctrl-C would be: it removes its sandboxes and does not wait for what runs.
    parentDeathSignal: 'INT',
    stopSignal: 'SIGINT',
    onMessage: () => {},
    onRestart: options.onRestart,
    // Killed, or told to stop before it could hear it.
    onStopped: async (endedWell) => (endedWell ? undefined : removeAgentRemains(environmentOf(options))),
  });
}

function environmentOf(options: HostAgentChildOptions): NodeJS.ProcessEnv {
  const { locations, installation, enrollmentToken } = options;
  return {
    ...process.env,
    SANDGATE_STATE_DIR: locations.stateDir,
    SANDGATE_EDGE_URL: options.edgeUrl,
    SANDGATE_EDGE_ORIGIN: options.edgeOrigin,
    SANDGATE_CGROUP_PARENT: `/${cgroupParent(locations.stateDir)}`,
    SANDGATE_RUNSC: installation.runscPath,
    SANDGATE_IMAGES_DIR: installation.imagesDir,
    SANDGATE_GUEST_DIR: installation.guestDir,
    SANDGATE_DIGEST_LIBRARY: installation.digestLibrary,
    SANDGATE_STREAM_KEEPER: installation.streamKeeperPath,
    ...(enrollmentToken === undefined ? {} : { SANDGATE_ENROLLMENT_TOKEN: enrollmentToken }),
    ...options.environment,
  };
}

/** A cgroup's name, one per state folder: an agent removes what it finds under its own parent, never what another one runs. */
export function cgroupParent(stateDir: string): string {
  return `sandgate-${createHash('sha256').update(stateDir).digest('hex').slice(0, 12)}`;
}
