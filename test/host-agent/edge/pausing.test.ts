/** Pause and resume as a host carries them out for its edge. */
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { failure } from '../../../shared/errors.ts';
import { type LinkedHost, linkHost } from '../../fixtures/edge-double/host.ts';

let host: LinkedHost;
beforeEach(async () => {
  host = await linkHost();
});
afterEach(() => host.stop());

describe('a host that is told to pause', () => {
  test('says so behind all that the program wrote before, each time it is asked', async () => {
    const { grants, peer } = await host.attach();
    const execute = await grants.execute('python', { code: 'x' }, { relay: 'bounded' });
    peer.command(execute.token, execute.payload);
    const call = await host.sandboxes.call(execute.claims.exec ?? '');
    await call.write('stdout', 'before');
    for (const act of ['pause', 'pause', 'resume', 'resume'] as const) {
      const grant = await grants.sign({ act });
      peer.command(grant.token, grant.payload);
    }
    await peer.changes.until('four answers', () => (answers(peer).length === 4 ? true : undefined));
    expect(answers(peer)).toEqual(['paused', 'paused', 'resumed', 'resumed']);
    const types = peer.frames.map(({ header }) => header.type);
    expect(types.indexOf('output')).toBeGreaterThan(-1);
    expect(types.indexOf('output')).toBeLessThan(types.indexOf('paused'));
    call.end();
    const { outcome } = await peer.finished(execute.claims.exec ?? '');
    expect(outcome.status).toBe('succeeded');
  });

  test('refuses it where the sandbox cannot be stopped', async () => {
    const { grants, peer, sandbox } = await attached();
    sandbox.pauseFailure = failure('sandbox_failed', 'the kernel did not stop the sandbox');
    const grant = await grants.sign({ act: 'pause' });
    peer.command(grant.token, grant.payload);
    const refused = await peer.changes.until(
      'a refusal',
      () => peer.frames.find(({ header }) => header.type === 'refused')?.header,
    );
    expect(refused).toMatchObject({
      execution_id: null,
      grant_jti: grant.claims.jti,
      code: 'sandbox_failed',
    });
  });
});

function answers(peer: { frames: readonly { header: { type: string } }[] }): string[] {
  return peer.frames
    .map(({ header }) => header.type)
    .filter((type) => type === 'paused' || type === 'resumed');
}

async function attached() {
  const session = await host.attach();
  const sandbox = host.sandboxes.started.at(-1);
  if (sandbox === undefined) throw new Error('no sandbox was started');
  return { ...session, sandbox };
}
