/** A WebSocket that is refused closes with 1006 and no word: the host asks for the word, and tells its operator. */
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import type { LogFields } from '../../../host-agent/logging/log.ts';
import type { Problem } from '../../../shared/problem.ts';
import { type LinkedHost, linkHost } from '../../fixtures/edge-double/host.ts';

const REVOKED: Problem = {
  type: 'about:blank',
  title: 'no valid bearer token',
  status: 401,
  code: 'unauthenticated',
  detail: 'the host was revoked; it may be enrolled anew, with another key',
  retryable: false,
  request_id: 'req_1',
};
const OVERLOADED: Problem = {
  ...REVOKED,
  status: 503,
  code: 'overloaded',
  detail: 'later\u001b[2J\u0007',
  retryable: true,
};
const REFUSAL = { code: REVOKED.code, detail: REVOKED.detail };

let host: LinkedHost;
let logged: LogFields[];
beforeEach(async () => {
  logged = [];
  const log = {
    info: () => {},
    warn: () => {},
    error: (fields: LogFields) => void logged.push(fields),
  };
  host = await linkHost({ log });
});
afterEach(() => host.stop());

const refusedWith = (code: string) =>
  host.edge.changes.until(`a host that knows of ${code}`, () =>
    host.agent.edgeRefusal?.code === code ? host.agent.edgeRefusal : undefined,
  );

const dials = (count: number) => {
  const enough = host.edge.upgrades + count;
  return host.edge.changes.until('more dials', () => (host.edge.upgrades >= enough ? true : undefined));
};

describe('a host whose link is refused', () => {
  test('logs what the edge says of it and keeps it, and asks once for what does not pass', async () => {
    host.edge.refusal = REVOKED;
    host.edge.controlSocket?.destroy();
    expect(await refusedWith('unauthenticated')).toEqual(REFUSAL);
    await dials(3);
    expect(host.edge.questions).toBe(1);
    expect(logged.filter(({ event }) => event === 'link_refused')).toEqual([
      { event: 'link_refused', ...REFUSAL },
    ]);
  });

  test('asks again after a refusal that passes, and takes no character of it for a command', async () => {
    host.edge.refusal = OVERLOADED;
    host.edge.controlSocket?.destroy();
    expect((await refusedWith('overloaded')).detail).toBe('later [2J ');
    host.edge.refusal = REVOKED;
    expect(await refusedWith('unauthenticated')).toEqual(REFUSAL);
  });

  test('has nothing to say of it once the link is up', async () => {
    const before = host.edge.readyControlLinks;
    host.edge.refusal = OVERLOADED;
    host.edge.controlSocket?.destroy();
    await refusedWith('overloaded');
    host.edge.refusal = undefined;
    await host.edge.changes.until('a link', () => (host.edge.readyControlLinks > before ? true : undefined));
    expect(host.agent.edgeRefusal).toBeUndefined();
  });

  test('says nothing of an edge that only cannot be reached', async () => {
    host.edge.acceptsLinks = false;
    host.edge.controlSocket?.destroy();
    await host.edge.changes.until('questions', () => (host.edge.questions >= 2 ? true : undefined));
    expect(host.agent.edgeRefusal).toBeUndefined();
    expect(logged.filter(({ event }) => event === 'link_refused')).toEqual([]);
  });
});
