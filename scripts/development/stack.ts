/** A whole Sandgate on this machine: one gateway and one host agent, supervised. Used by `npm start`, tests and bench. */
import { existsSync } from 'node:fs';
import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { type Lock, tryLock } from '../../host-agent/process/lock-file.ts';
import { SetupFailure } from '../../host-agent/setup/failure.ts';
import type { Installation } from '../../host-agent/setup/setup.ts';
import type { Locations } from '../locations.ts';
import { mintAccessToken, type TokenOverrides } from './access-token.ts';
import { type Bindings, developmentBindings } from './bindings.ts';
import { removeDevFile, writeDevFile } from './dev-file.ts';
import { gatewayChild } from './gateway-child.ts';
import { hostAgentChild } from './host-agent-child.ts';
import { type DevelopmentKeys, loadDevelopmentKeys } from './keys.ts';
import { OperatorClient } from './operator-client.ts';
import { requireFreePort } from './port.ts';
import { connectedHost, standing, untilBack, untilReady } from './readiness.ts';
import type { SupervisedChild } from './supervised-child.ts';

/** Long enough for the agent to remove every sandbox. */
const STOP_GRACE_MS = 30_000;

export type StackOptions = {
  locations: Locations;
  installation: Installation;
  /** 0 takes any free port. */
  port: number;
  /** Extra or other text bindings of the Worker. */
  bindings?: Bindings;
  /** Extra environment of the host agent. */
  hostAgentEnvironment?: NodeJS.ProcessEnv;
  /** False starts the gateway alone, for a test or bench that plays the host itself. */
  hostAgent?: boolean;
  /** Hears of children that died and are started again. */
  onNotice?: (text: string) => void;
};

export type Stack = {
  url: string;
  stateDir: string;
  keys: DevelopmentKeys;
  operatorToken: string;
  operator: OperatorClient;
  /** Undefined without a host agent. */
  hostId: string | undefined;
  devFilePath: string;
  token: (overrides?: TokenOverrides) => Promise<string>;
  gatewayPid: () => number | undefined;
  workerdPid: () => number | undefined;
  hostAgentPid: () => number | undefined;
  /** SIGKILL; resolves when the process is gone. Its supervisor starts it again. */
  crashHostAgent: () => Promise<void>;
  crashWorkerd: () => void;
  /** Resolves once the edge answers and, with a host agent, sees its host connected. */
  ready: () => Promise<void>;
  stop: () => Promise<void>;
};

export async function startStack(options: StackOptions): Promise<Stack> {
  const { stateDir } = options.locations;
  await mkdir(stateDir, { recursive: true, mode: 0o700 });
  const lock = requireLock(stateDir);
  const running: SupervisedChild[] = [];
  const stop = async (): Promise<void> => {
    // The host agent first: it tells the edge goodbye while there is one.
    const failed: unknown[] = [];
    for (const child of running.toReversed()) {
      await child.stop(STOP_GRACE_MS).catch((error: unknown) => failed.push(error));
    }
    await removeDevFile(stateDir);
    lock.release();
    if (failed.length > 0) throw failed[0];
  };
  try {
    return await startChildren(options, running, stop);
  } catch (error: unknown) {
    await stop();
    throw error;
  }
}

function requireLock(stateDir: string): Lock {
  const result = tryLock(join(stateDir, 'lock'));
  if (result.held) return result.lock;
  throw new SetupFailure(
    `already running on ${stateDir} (process ${result.holderPid}); SANDGATE_STATE_DIR and PORT start another one`,
  );
}

async function startChildren(
  request: StackOptions,
  running: SupervisedChild[],
  stop: () => Promise<void>,
): Promise<Stack> {
  let isUp = false;
  // A child that dies during the start is not news of its own: the start fails with its reason.
  const onNotice = (text: string): void => (isUp ? request.onNotice?.(text) : undefined);
  const options = { ...request, onNotice };
  const { stateDir } = options.locations;
  const port = await requireFreePort(options.port);
  const url = `http://127.0.0.1:${port}`;
  const keys = await loadDevelopmentKeys(stateDir, url);
  const operator = new OperatorClient(url, keys.operator_token);
  const token = (overrides?: TokenOverrides): Promise<string> => mintAccessToken(keys, overrides);

  const gateway = startGatewayChild(options, keys, port);
  running.push(gateway.child);
  await untilReady('gateway', gateway.child, gateway.workerdPid);

  const hostAgent = options.hostAgent === false ? undefined : await startHostAgent(options, keys, operator);
  if (hostAgent !== undefined) running.push(hostAgent);
  const hostId =
    hostAgent === undefined
      ? undefined
      : await untilReady('host agent', hostAgent, () =>
          connectedHost(operator, hostAgent, gateway.upSinceMs()),
        );
  const devFilePath = await writeDevFile(stateDir, {
    url,
    token: await token(),
    operator_token: keys.operator_token,
    host_id: hostId ?? null,
  });
  isUp = true;
  return {
    url,
    stateDir,
    keys,
    operatorToken: keys.operator_token,
    operator,
    hostId,
    devFilePath,
    token,
    gatewayPid: () => gateway.child.pid,
    workerdPid: gateway.workerdPid,
    hostAgentPid: () => hostAgent?.pid,
    crashHostAgent: async () => hostAgent?.crash(),
    crashWorkerd: gateway.crashWorkerd,
    ready: () =>
      untilBack(
        () =>
          hostAgent === undefined
            ? operator.hosts().catch(() => undefined)
            : connectedHost(operator, hostAgent, gateway.upSinceMs()),
        () => standing(operator, running),
      ),
    stop,
  };
}

interface Gateway {
  child: SupervisedChild;
  workerdPid: () => number | undefined;
  crashWorkerd: () => void;
  /** Wall-clock time since which the edge can have heard of anything. */
  upSinceMs: () => number;
}

function startGatewayChild(
  { locations, bindings, onNotice = () => {} }: StackOptions,
  keys: DevelopmentKeys,
  port: number,
): Gateway {
  let workerdPid: number | undefined;
  let crashedAtMs = 0;
  const child = gatewayChild({
    locations,
    port,
    bindings: developmentBindings(keys, bindings),
    onMessage: (message) => {
      if (message.type === 'workerd_restarted') onNotice('workerd died and was started again');
      workerdPid = message.workerd_pid;
    },
    onRestart: onNotice,
  });
  child.start();
  return {
    child,
    workerdPid: () => workerdPid,
    crashWorkerd: () => {
      if (workerdPid === undefined) return;
      crashedAtMs = Date.now();
      process.kill(workerdPid, 'SIGKILL');
    },
    upSinceMs: () => Math.max(child.startedAtMs, crashedAtMs),
  };
}

async function startHostAgent(
  options: StackOptions,
  keys: DevelopmentKeys,
  operator: OperatorClient,
): Promise<SupervisedChild> {
  const { locations, installation, hostAgentEnvironment = {}, onNotice = () => {} } = options;
  const isEnrolled = existsSync(join(locations.stateDir, 'host/identity.json'));
  const child = hostAgentChild({
    locations,
    installation,
    edgeUrl: operator.url,
    edgeOrigin: keys.edge_origin,
    enrollmentToken: isEnrolled ? undefined : await operator.createEnrollmentToken(),
    environment: hostAgentEnvironment,
    onRestart: onNotice,
  });
  child.start();
  return child;
}
