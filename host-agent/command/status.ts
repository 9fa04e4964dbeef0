/** `status`: what the agent on this machine is doing. */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { askAgent } from '../local-control/client.ts';
import { type AgentStatus, cureOfRefusal } from '../local-control/status.ts';
import { CommandFailure, EXIT_FAILED, fromFailure } from './failure.ts';
import { serviceState } from './service.ts';
import type { Subcommand } from './subcommand.ts';

export const status: Subcommand = {
  summary: 'What runs on this host. Exit code 0: the agent runs and the edge is connected.',
  usage: '[--json]',
  options: { json: { type: 'boolean' } },
  positionals: [0, 0],
  async run({ layout, flag }) {
    const asked = await askAgent(layout.hostDir, 'status');
    if (!asked.ok && asked.code === 'not_found') {
      const service = await serviceState(layout);
      const isEnrolled = existsSync(join(layout.hostDir, 'identity.json'));
      const next = isEnrolled
        ? 'journalctl -u sandgate-host says why'
        : 'sandgate-host enroll makes it a host';
      throw new CommandFailure(
        `${asked.detail}${service === undefined ? '' : ` (service: ${service})`}; ${next}`,
      );
    }
    if (!asked.ok) throw fromFailure(asked);
    const now = asked.value;
    console.log(flag('json') ? JSON.stringify(now) : describe(now));
    return now.edge_connected && !now.degraded ? 0 : EXIT_FAILED;
  },
};

function refusalOf(now: AgentStatus): string[][] {
  if (now.edge_refusal === undefined) return [];
  const { code, detail } = now.edge_refusal;
  const cure = cureOfRefusal(now);
  return [['refused', `${code}: ${detail}`], ...(cure === undefined ? [] : [['', `→ ${cure}`]])];
}

function describe(now: AgentStatus): string {
  const inUse = now.images.map(
    ({ name, digest, sandboxes }) =>
      `${name} ${digest.slice(0, 19)}${sandboxes > 0 ? ` (${sandboxes} sandboxes)` : ''}`,
  );
  return [
    ['state', `${now.state}${now.degraded ? ', journal degraded: the disk refuses writes' : ''}`],
    ['host', now.host_id ?? 'not enrolled yet'],
    ['edge', `${now.edge_url}, ${now.edge_connected ? 'connected' : 'not connected'}`],
    ...refusalOf(now),
    ['sandboxes', `${now.sandboxes} of ${now.capacity}`],
    ['executions', `${now.executions} running`],
    ['runsc', now.runsc_version ?? ''],
    ['images', inUse.join(', ')],
    ['agent', `${now.agent_version}, process ${now.pid}, up ${now.uptime_s} s`],
  ]
    .map(([name = '', value = '']) => `${name.padEnd(11)} ${value}`)
    .join('\n');
}
