import { describe, expect, test } from 'vitest';
import { REPORTS_PER_S, reportAfterMs } from '../../../worker/objects/tenant/ledger/account.ts';
import {
  CEILING_PER_S,
  type Features,
  type Loads,
  loadsAt,
  type Scale,
  WHOLE,
  webhooksLoadAt,
} from './model.ts';

function busy(more: Partial<Features>): Features {
  return { ...WHOLE.perSession, ...more };
}

function over(loads: Loads): string[] {
  return Object.entries(loads).flatMap(([object, perS]) => (perS > CEILING_PER_S ? [object] : []));
}

describe('a million sessions on 5,000 hosts with 100,000 calls a second', () => {
  test('bring no object above 300 requests a second', () => {
    const loads = loadsAt(WHOLE);
    expect(over(loads), JSON.stringify(loads)).toEqual([]);
    expect(loads.session).toBeLessThan(1);
    expect(loads.host).toBeLessThan(2);
  });

  test('are told to the webhooks of the largest tenant without more than that', () => {
    expect(webhooksLoadAt({ ...WHOLE, largestTenant: 0.05 })).toBeLessThanOrEqual(CEILING_PER_S);
    expect(webhooksLoadAt({ ...WHOLE, largestTenant: 0.1 })).toBeGreaterThan(CEILING_PER_S);
  });

  test('leave the pool as it is when six times as many sessions come and go', () => {
    const loads = loadsAt({ ...WHOLE, sessionLifeS: 100, largestTenant: 0.005 });
    expect(over(loads), JSON.stringify(loads)).toEqual([]);
  });

  test('have ten times as many calls of built-in tools without any object but their own being asked', () => {
    const builtIn = { ...WHOLE, registeredCalls: 0, sourceCalls: 0, approvedCalls: 0 };
    const { session: _own, ...others } = loadsAt(builtIn);
    const { session: _tenfold, ...othersThen } = loadsAt({ ...builtIn, callsPerS: 1_000_000 });
    expect(othersThen).toEqual(others);
  });

  test('may all be of registered tools, and ten times as many, without the catalogue being asked more often', () => {
    const registered = { ...WHOLE, registeredCalls: 1, sourceCalls: 0, approvedCalls: 0 };
    const loads = loadsAt(registered);
    expect(over(loads), JSON.stringify(loads)).toEqual([]);
    expect(loadsAt({ ...registered, callsPerS: 1_000_000 }).catalogue).toBe(loads.catalogue);
  });
});

test('what a tenant hears of usage does not grow with its sessions', () => {
  expect(reportAfterMs(10)).toBe(30_000);
  for (const sessions of [1_000, 50_000, 1_000_000]) {
    expect((sessions * 1_000) / reportAfterMs(sessions)).toBeLessThanOrEqual(REPORTS_PER_S);
  }
});

describe('the model says where it ends', () => {
  test.each<[string, Partial<Scale>, string]>([
    ['one pool for all hosts', { hostsPerPool: 5_000 }, 'pool'],
    ['one tenant for all sessions', { largestTenant: 1 }, 'tenant'],
    ['sessions that live for a second', { sessionLifeS: 1, hosts: 5_000 }, 'host'],
    ['a session with a thousand calls a second', { sessions: 100 }, 'session'],
    [
      'sessions that are in and out of snapshots all the time',
      { perSession: busy({ suspensions: 2 }) },
      'tenant',
    ],
    [
      'a thousand isolates that call registered tools of one tenant',
      { isolates: 1_000, registeredCalls: 1 },
      'catalogue',
    ],
    ['one MCP server behind most of them', { sourceCalls: 0.5 }, 'source'],
    ['an approval for one call in ten', { approvedCalls: 0.1 }, 'approvals'],
    ['a tenant with a twentieth of everything', { largestTenant: 0.05 }, 'tenant'],
    ['sessions that keep a file every minute', { perSession: busy({ artifacts: 10 }) }, 'artifacts'],
    ['sessions with a snapshot every minute', { perSession: busy({ snapshots: 10 }) }, 'snapshots'],
  ])('with %s it is the %s object', (_name, change, object) => {
    expect(over(loadsAt({ ...WHOLE, ...change }))).toContain(object);
  });
});
