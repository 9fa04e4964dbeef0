/** Executions of different tools in one sandbox. */
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { LINK_WINDOW_BYTES, MAX_QUEUED_EXECUTIONS, OUTPUT_FRAME_BYTES } from '../../../shared/limits.ts';
import { ReceiptSchema } from '../../../shared/receipt.ts';
import type { Grant } from '../../fixtures/edge-double/grants.ts';
import { type AttachedSession, type LinkedHost, linkHost } from '../../fixtures/edge-double/host.ts';
import type { ScriptedCall } from '../../fixtures/edge-double/scripted-sandboxes.ts';

let host: LinkedHost;
let session: AttachedSession;
beforeEach(async () => {
  host = await linkHost();
  session = await host.attach();
});
afterEach(() => host.stop());

async function send(tool: 'python' | 'shell', relay: 'full' | 'bounded' = 'bounded'): Promise<Grant> {
  const args = tool === 'python' ? { code: '1' } : { command: 'ls' };
  const base = await session.grants.execute(tool, args);
  const grant = await session.grants.sign({ ...base.claims, relay }, base.payload);
  session.peer.command(grant.token, grant.payload);
  return grant;
}

const callOf = (grant: Grant): Promise<ScriptedCall> => host.sandboxes.call(grant.claims.exec ?? '');

function chain(): { tool: string; seq: number; prev: string }[] {
  return session.peer.ofType('finished').map(({ header }) => {
    const json = Buffer.from(header.receipt.payload, 'base64').toString();
    const { tool, seq, prev_sha256: prev } = ReceiptSchema.parse(JSON.parse(json));
    return { tool, seq, prev };
  });
}

describe('executions of different tools', () => {
  test('run at the same time, and take their places in the chain as they end', async () => {
    const python = await send('python');
    await callOf(python);
    const shell = await send('shell');
    (await callOf(shell)).end();
    await session.peer.finished(shell.claims.exec ?? '');
    const again = await send('shell');
    const [slow, quick] = [await callOf(python), await callOf(again)];
    slow.end();
    quick.end();
    await session.peer.finished(again.claims.exec ?? '');
    await session.peer.finished(python.claims.exec ?? '');
    expect(chain().map(({ seq }) => seq)).toEqual([1, 2, 3]);
    expect(chain()[0]?.tool).toBe('shell');
  });

  test('that end in the same moment are told in the order of their receipts', async () => {
    for (let round = 0; round < 10; round += 1) {
      const both = [await callOf(await send('python')), await callOf(await send('shell'))];
      for (const call of both) {
        void call.write('stdout', 'x');
        call.end();
      }
      for (const { call } of both) await session.peer.finished(call.executionId);
    }
    expect(chain().map(({ seq }) => seq)).toEqual(Array.from({ length: 20 }, (_, index) => index + 1));
  });

  test('are stopped and fed by their own names', async () => {
    const python = await send('python');
    const shell = await send('shell');
    const calls = [await callOf(python), await callOf(shell)];
    const input = await session.grants.stdin(python.claims.exec ?? '', new TextEncoder().encode('in'));
    session.peer.command(input.token, input.payload);
    const stop = await session.grants.interrupt(shell.claims.exec);
    session.peer.command(stop.token, stop.payload);
    await session.peer.finished(shell.claims.exec ?? '');
    expect(calls.map(({ interrupts }) => interrupts)).toEqual([0, 1]);
    expect(calls.map(({ stdin }) => stdin.length)).toEqual([1, 0]);
  });

  test('share the places of those that wait', async () => {
    await callOf(await send('python'));
    await callOf(await send('shell'));
    for (let count = 0; count < MAX_QUEUED_EXECUTIONS; count += 1) {
      await send(count % 2 === 0 ? 'python' : 'shell');
    }
    const last = await send('shell');
    expect(await session.peer.refusal(last.claims.jti)).toMatchObject({ code: 'queue_full' });
    expect(host.sandboxes.calls).toHaveLength(2);
  });

  test('get their output and their end through though the edge takes nothing of another', async () => {
    session.peer.acknowledges = false;
    const python = await send('python', 'full');
    const printing = await callOf(python);
    const frames = LINK_WINDOW_BYTES / OUTPUT_FRAME_BYTES + 4;
    for (let count = 0; count < frames; count += 1) {
      void printing.write('stdout', new Uint8Array(OUTPUT_FRAME_BYTES).fill(97));
    }
    const shell = await send('shell', 'full');
    const other = await callOf(shell);
    await other.write('stdout', 'here');
    other.end();
    await session.peer.finished(shell.claims.exec ?? '');
    expect(session.peer.output(shell.claims.exec ?? '', 'stdout').toString()).toBe('here');
    printing.end();
    session.peer.acknowledges = true;
    session.peer.acknowledgeAll();
    await session.peer.finished(python.claims.exec ?? '');
    expect(session.peer.output(python.claims.exec ?? '', 'stdout')).toHaveLength(frames * OUTPUT_FRAME_BYTES);
  });

  test('are told after a restart in the order of their receipts, whichever began first', async () => {
    session.peer.acknowledges = false;
    const python = await send('python');
    await callOf(python);
    const shell = await send('shell');
    (await callOf(shell)).end();
    await session.peer.finished(shell.claims.exec ?? '');
    const { peer } = session;
    const stopping = host.stopAgent();
    await stopping;
    peer.acknowledges = true;
    await host.restart();
    await peer.frame('sandbox_lost');
    const ends = chain();
    const seqs = ends.map(({ seq }) => seq);
    expect(seqs).toEqual(seqs.toSorted((left, right) => left - right));
    expect(new Set(ends.map(({ tool }) => tool))).toEqual(new Set(['shell', 'python']));
  });
});
