/** The agent dies at every point of an execution's road: nothing runs twice, nothing that ended is lost. */
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { readReceipt } from '../../../shared/receipt-verify.ts';
import { AgentProcess } from '../../fixtures/edge-double/agent-process.ts';
import type { Grant } from '../../fixtures/edge-double/grants.ts';
import type { SessionPeer } from '../../fixtures/edge-double/session-peer.ts';

let agent: AgentProcess;
beforeEach(async () => {
  agent = await AgentProcess.start();
});
afterEach(() => agent.stop());

async function begin(code: string): Promise<{ peer: SessionPeer; grant: Grant; executionId: string }> {
  const { grants, peer } = await agent.attach();
  const grant = await grants.execute('python', { code });
  peer.command(grant.token, grant.payload);
  return { peer, grant, executionId: grant.claims.exec ?? '' };
}

async function expectUnknown(peer: SessionPeer, executionId: string): Promise<void> {
  const { outcome, receipt } = await peer.finished(executionId);
  expect(outcome).toMatchObject({ status: 'unknown', reason: 'host_restarted', state_lost: true });
  const read = readReceipt(receipt);
  if (!read.ok) throw new Error(read.detail);
  expect(read.value.receipt).toMatchObject({ status: 'unknown', execution_id: executionId, seq: 1 });
  expect(read.value.receipt.stdout.truncated).toBe(true);
  const lost = await peer.frame('sandbox_lost');
  expect(lost.reason).toBe('host_restarted');
  expect(agent.starts.filter((started) => started === executionId).length).toBeLessThanOrEqual(1);
}

describe('an agent that is killed', () => {
  test('F01 before it heard of the grant ran nothing, and refuses it afterwards: the sandbox is gone', async () => {
    const { grants, peer } = await agent.attach();
    await agent.kill();
    const grant = await grants.execute('python', { code: 'print late' });
    peer.acknowledges = false;
    await agent.run();
    await peer.frame('sandbox_lost');
    peer.command(grant.token, grant.payload);
    const refusal = await peer.refusal(grant.claims.jti);
    expect(refusal).toMatchObject({ execution_id: grant.claims.exec, code: 'sandbox_failed' });
    expect(agent.starts).toEqual([]);
  });

  test('F02 after the start was journalled but before anything ran tells a signed unknown', async () => {
    const { peer, executionId } = await begin('kill on start');
    await agent.died();
    await agent.run();
    await expectUnknown(peer, executionId);
  });

  test('F03 while the program runs tells a signed unknown', async () => {
    const { peer, executionId } = await begin('block');
    await peer.frame('output');
    await agent.kill();
    await agent.run();
    await expectUnknown(peer, executionId);
    expect(agent.starts).toEqual([executionId]);
  });

  test('F04 after the program ended but before that was journalled does not guess a success', async () => {
    const { peer, executionId } = await begin('kill on end');
    await agent.died();
    await agent.run();
    await expectUnknown(peer, executionId);
  });

  test('F05 after the end was journalled but before it was sent sends it: output, value and receipt', async () => {
    const { grants, peer } = await agent.attach();
    const grant = await grants.execute('python', { code: 'print kept' });
    const executionId = grant.claims.exec ?? '';
    // The command is the last that passes: what the host answers stays in buffers that nobody reads.
    peer.socket?.pause();
    agent.edge.acceptsLinks = false;
    peer.command(grant.token, grant.payload);
    await agent.journalHolds('finished', executionId);
    await agent.kill();
    agent.edge.acceptsLinks = true;
    await agent.run();
    const { outcome } = await peer.finished(executionId);
    expect(outcome.status).toBe('succeeded');
    expect(peer.output(executionId, 'stdout').toString()).toBe('kept');
    expect(peer.part(executionId, 'value')).toBe('done');
    expect(agent.starts).toEqual([executionId]);
  });

  test('F06 after the end was sent but before the acknowledgement sends the same receipt again', async () => {
    const { grants, peer } = await agent.attach();
    peer.acknowledges = false;
    const grant = await grants.execute('python', { code: 'print twice told' });
    peer.command(grant.token, grant.payload);
    const executionId = grant.claims.exec ?? '';
    const before = await peer.finished(executionId);
    await agent.kill();
    peer.acknowledges = true;
    await agent.run();
    await peer.frame('sandbox_lost');
    const told = peer.ofType('finished').map(({ header }) => header);
    expect(told).toHaveLength(2);
    expect(told[1]).toMatchObject({ receipt: before.receipt, outcome: before.outcome });
    expect(peer.output(executionId, 'stdout').toString()).toBe('twice told');
    expect(agent.starts).toEqual([executionId]);
  });

  test('tells an end only once when the edge had acknowledged it', async () => {
    const { peer, executionId } = await begin('print once');
    await peer.finished(executionId);
    await agent.journalHolds('acknowledged', executionId);
    await agent.kill();
    await agent.run();
    await peer.frame('sandbox_lost');
    expect(peer.ofType('finished')).toHaveLength(1);
  });

  test('A40 answers a grant of before the restart with the stored receipt and starts nothing', async () => {
    const { peer, grant, executionId } = await begin('print stored');
    const before = await peer.finished(executionId);
    await agent.kill();
    peer.acknowledges = false;
    await agent.run();
    await peer.frame('sandbox_lost');
    const finishedBefore = peer.ofType('finished').length;
    peer.command(grant.token, grant.payload);
    await peer.changes.until('the stored receipt', () =>
      peer.ofType('finished').length > finishedBefore ? true : undefined,
    );
    expect(peer.ofType('finished').at(-1)?.header).toMatchObject({ receipt: before.receipt });
    expect(agent.starts).toEqual([executionId]);
  });

  test('F12 gives up what the edge has fenced, and links no more', async () => {
    const { peer } = await begin('block');
    await peer.frame('output');
    await agent.kill();
    peer.fences = true;
    await agent.run();
    await peer.changes.until('the fence', () => (peer.hellos > 1 ? true : undefined));
    await agent.journalHolds('detached', peer.sessionId);
    await agent.kill();
    const { upgrades } = agent.edge;
    await agent.run();
    // Only the control link: sessions are dialled before it.
    expect(agent.edge.upgrades - upgrades).toBe(1);
  });
});
