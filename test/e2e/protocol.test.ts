/** F22 on a real edge and a real agent: a proxy between them makes one of the two look like one of another version. */
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { OLDEST_PROTOCOL_VERSION, PROTOCOL_VERSION } from '../../shared/frames.ts';
import { FaultProxy } from '../fixtures/fault-proxy.ts';
import { PATIENCE_MS } from '../patience.ts';
import { Refused, type SessionClient } from './client.ts';
import { begin, follow, outputOf, type Program, ScriptedStack } from './scripted-stack.ts';
import { until } from './until.ts';

const program: Program = { name: 'p', pieces: 200, pieceBytes: 2_000, everyMs: 10 };
const UNKNOWN_VERSION = 0;
const NEWER_VERSION = PROTOCOL_VERSION + 1;

let edge: ScriptedStack;
let proxy: FaultProxy;
/** What the agent has offered, on links of either kind. */
let offers: number[];

beforeEach(async () => {
  offers = [];
  edge = await ScriptedStack.start();
  proxy = await FaultProxy.start(edge.stack.url);
}, 600_000);
afterEach(async () => {
  await edge.stop();
  await proxy.stop();
});

/** Whenever the agent offers its own version the edge hears another one. */
function hears(instead: number): void {
  const own = Buffer.from(`"protocol":${PROTOCOL_VERSION}`);
  proxy.up.alter = (message) => {
    const head = message.subarray(0, 512).toString('latin1');
    if (!head.includes('"type":"hello"')) return;
    offers.push(Number(/"protocol":(\d)/.exec(head)?.[1]));
    const at = message.indexOf(own);
    if (at >= 0) message.write(String(instead), at + own.length - 1, 'latin1');
  };
}

async function expectWhole(session: SessionClient): Promise<void> {
  const executionId = await until('the call is taken', PATIENCE_MS, () =>
    begin(session, program).catch((error: unknown) => {
      if (error instanceof Refused && error.problem.retryable) return undefined;
      throw error;
    }),
  );
  const { stdoutBytes, stderrBytes, gaps, end } = await follow(session, executionId);
  const expected = outputOf(program);
  expect([gaps, stdoutBytes.toString(), stderrBytes.toString()]).toEqual([
    [],
    expected.stdout.toString(),
    expected.stderr.toString(),
  ]);
  expect(end).toMatchObject({ status: 'succeeded', state_lost: false });
}

describe('F22 a host and an edge', () => {
  test('of which the edge refuses the version of the host agree on the former one, also after kill -9 of workerd', async () => {
    hears(UNKNOWN_VERSION);
    const host = await edge.addHost({ edgeUrl: proxy.url });
    expect(offers).toEqual([PROTOCOL_VERSION, OLDEST_PROTOCOL_VERSION]);
    const session = await edge.api.open();
    await expectWhole(session);
    edge.stack.crashWorkerd();
    await until('the link is lost', PATIENCE_MS, async () => (host.agent.isConnected ? undefined : true));
    await until('the link is back', PATIENCE_MS, async () => (host.agent.isConnected ? true : undefined));
    await expectWhole(session);
  }, 180_000);

  test('of which the host is newer agree on the version of the edge at once', async () => {
    hears(NEWER_VERSION);
    await edge.addHost({ edgeUrl: proxy.url });
    await expectWhole(await edge.api.open());
    expect(new Set(offers)).toEqual(new Set([PROTOCOL_VERSION]));
  }, 120_000);
});
