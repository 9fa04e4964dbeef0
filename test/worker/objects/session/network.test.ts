import { runInDurableObject } from 'cloudflare:test';
import { afterEach, beforeEach, expect, test } from 'vitest';
import * as z from 'zod';
import { egressClaim, NetworkSchema } from '../../../../shared/network.ts';
import type { HostDouble } from '../../../fixtures/host-double/host-double.ts';
import { connectFakeHost } from '../../harness/fake-host.ts';
import { call, caller, openSession, sessionObject } from '../../harness/sessions.ts';

const SECRET = 'Bearer sk-0123456789abcdef';
const network = NetworkSchema.parse({
  allow: ['pypi.org', '*.example.com:443'],
  inject: [{ host: 'pypi.org', header: 'authorization', secret: SECRET }],
});

let host: HostDouble;
beforeEach(async () => {
  host = await connectFakeHost();
});
afterEach(() => host.close());

test('a network goes to the host with its secrets, is in every grant by its digest, and is shown without them', async () => {
  const session = await openSession(host, { network });
  const { attach, claims } = host.session(session.id);
  expect(attach.network).toEqual(network);
  const claim = await egressClaim(network);
  expect(claims.egress).toBe(claim);

  const executed = await session.stub.execute(call('hello'));
  expect(executed).toMatchObject({ ok: true, value: { status: 'succeeded' } });
  expect(new Set(host.commands.map((command) => command.claims.egress))).toEqual(new Set([claim]));

  const described = await session.stub.describe(caller);
  expect(described).toMatchObject({
    value: {
      network: {
        allow: network.allow,
        inject: [{ host: 'pypi.org', header: 'authorization', tls: true }],
      },
    },
  });
  expect(JSON.stringify([described, executed])).not.toContain('0123456789abcdef');
});

test('a session without a network has none in its grants', async () => {
  const session = await openSession(host);
  const { attach, claims } = host.session(session.id);
  expect(attach.network).toBeNull();
  expect(claims.egress).toBe('none');
  expect(await session.stub.describe(caller)).toMatchObject({ value: { network: null } });
});

test('the secrets of a session are kept sealed, and not longer than the session', async () => {
  const session = await openSession(host, { network });
  const stored = (): Promise<string> =>
    runInDurableObject(sessionObject(session.id), (_object, state) =>
      JSON.stringify(state.storage.sql.exec('SELECT facts FROM session').toArray()),
    );
  const sealed = z.string().parse(/"secrets\\":\\"([^"\\]+)/.exec(await stored())?.[1]);
  expect(await stored()).not.toContain('0123456789abcdef');
  expect(await session.stub.destroy(caller)).toMatchObject({ ok: true });
  expect(await stored()).toContain('pypi.org');
  expect(await stored()).not.toContain(sealed);
});
