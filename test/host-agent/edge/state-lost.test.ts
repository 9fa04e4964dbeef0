/** F10: the state folder of a host is gone, and with it its key. */
import { rm } from 'node:fs/promises';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { identityOf } from '../../../host-agent/edge/enrolment.ts';
import { AgentProcess } from '../../fixtures/edge-double/agent-process.ts';

let agent: AgentProcess;
beforeEach(async () => {
  agent = await AgentProcess.start();
});
afterEach(() => agent.stop());

test('F10 a host whose state is lost must enrol anew, and is another host that knows no old session', async () => {
  const { grants, peer } = await agent.attach();
  const grant = await grants.execute('python', { code: 'block' });
  peer.command(grant.token, grant.payload);
  await peer.frame('output');
  const hellos = peer.hellos;
  await agent.kill();
  await rm(agent.stateDir, { recursive: true });

  const without = await identityOf({
    directory: agent.stateDir,
    edgeUrl: agent.edge.origin,
    edgeOrigin: agent.edge.origin,
    enrolmentToken: undefined,
    agentVersion: '0.0.0',
  });
  expect(without).toMatchObject({ ok: false, code: 'enrollment_refused' });

  const [former] = agent.edge.hosts.keys();
  await agent.run(agent.edge.mintToken());
  const hosts = [...agent.edge.hosts.keys()];
  expect(hosts).toHaveLength(2);
  expect(hosts[1]).not.toBe(former);
  // It told nothing of the session: its own host says nothing any more, so the edge calls it lost.
  expect(peer.hellos).toBe(hellos);
  expect(peer.ofType('finished')).toEqual([]);
});
