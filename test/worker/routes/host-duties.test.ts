import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { OperatorHostSchema } from '../../../shared/host-api.ts';
import { newId } from '../../../shared/ids.ts';
import type { HostDouble } from '../../fixtures/host-double/host-double.ts';
import { tokenOf } from '../fixture-issuer.ts';
import { api, problemIn } from '../harness/api.ts';
import { connectFakeHost } from '../harness/fake-host.ts';
import { call, openSession } from '../harness/sessions.ts';
import { OPERATOR_TOKEN } from '../issuer-bindings.ts';

let host: HostDouble;
beforeEach(async () => {
  host = await connectFakeHost();
});
afterEach(() => host.close());

async function order(duty: string, hostId = host.hostId) {
  return api('POST', `/v1/hosts/${hostId}/${duty}`, { token: OPERATOR_TOKEN });
}
const faultsAfter = async (duty: string) => OperatorHostSchema.parse((await order(duty)).json).faults;
const create = async () => api('POST', '/v1/sessions', { token: await tokenOf(), body: {} });

describe('a host that its operator wants empty', () => {
  test('gets no new session once it is cordoned, and the sessions it has go on', async () => {
    const session = await openSession(host);
    expect(await faultsAfter('cordon')).toEqual(['cordoned']);
    expect(problemIn(await create())).toMatchObject({ code: 'no_host_available', retryable: true });
    expect(await session.stub.execute(call('x'))).toMatchObject({ ok: true });
    expect(await faultsAfter('uncordon')).toEqual([]);
    expect((await create()).status).toBe(201);
  });

  test('is told to drain, and told again when it links anew, until it is uncordoned', async () => {
    host.protocol = 2;
    await host.connect();
    expect((await faultsAfter('drain')).toSorted()).toEqual(['cordoned', 'draining']);
    await host.until(() => host.draining === true);
    host.draining = undefined;
    await host.connect();
    await host.until(() => host.draining === true);
    expect(problemIn(await create())).toMatchObject({ code: 'no_host_available' });
    await order('uncordon');
    await host.until(() => host.draining === false);
    host.draining = undefined;
    await host.connect();
    expect((await create()).status).toBe(201);
    expect(host.draining).toBeUndefined();
  });

  test('hears no word that it does not know: its pool alone keeps it free', async () => {
    expect((await faultsAfter('drain')).toSorted()).toEqual(['cordoned', 'draining']);
    expect(problemIn(await create())).toMatchObject({ code: 'no_host_available' });
    await order('uncordon');
    expect((await create()).status).toBe(201);
    expect(host.draining).toBeUndefined();
  });
});

test.each(['cordon', 'drain', 'uncordon'])('%s of a host that is not there is not found', async (duty) => {
  expect(problemIn(await order(duty, newId('hst')))).toMatchObject({ status: 404, code: 'not_found' });
  expect(problemIn(await order(duty, 'no-host'))).toMatchObject({ status: 404, code: 'not_found' });
});
