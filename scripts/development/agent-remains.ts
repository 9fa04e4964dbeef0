/** What a host agent that could not end by itself left on the machine: its sandboxes with their control groups and folders. */
import { readConfiguration } from '../../host-agent/configuration.ts';
import { SILENT_LOG } from '../../host-agent/logging/log.ts';
import { openEngine } from '../../host-agent/sandbox/engine.ts';
import { removeLeftovers } from '../../host-agent/sandbox/reconcile.ts';
import { endFormerGuards } from '../../host-agent/sandbox/thaw-guard.ts';

/** Of no agent that still runs. `environment`: that of the agent. */
export async function removeAgentRemains(environment: NodeJS.ProcessEnv): Promise<void> {
  const configuration = readConfiguration(environment);
  // Then there was no agent either.
  if (!configuration.ok) return;
  const { hostDir, ...settings } = configuration.value;
  const engine = await openEngine({ ...settings, stateDir: hostDir, log: SILENT_LOG });
  if (!engine.ok) return;
  await endFormerGuards(engine.value.bundles.dir);
  await removeLeftovers(engine.value);
  await engine.value.streamKeeper.end();
  await engine.value.cgroups.removeParent();
}
