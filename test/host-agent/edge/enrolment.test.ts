import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { type EnrolmentOptions, identityOf } from '../../../host-agent/edge/enrolment.ts';
import { EdgeDouble } from '../../fixtures/edge-double/edge-double.ts';

let edge: EdgeDouble;
let directory: string;
beforeEach(async () => {
  edge = await EdgeDouble.start();
  directory = await mkdtemp(join(tmpdir(), 'sandgate-enrolment-'));
});
afterEach(async () => {
  await edge.stop();
  await rm(directory, { recursive: true });
});

function options(overrides: Partial<EnrolmentOptions> = {}): EnrolmentOptions {
  return {
    directory,
    edgeUrl: edge.origin,
    edgeOrigin: edge.origin,
    enrolmentToken: edge.mintToken(),
    agentVersion: '0.0.0',
    ...overrides,
  };
}

describe('enrolment', () => {
  test('is needed once: a later start is the same host without a token', async () => {
    const first = await identityOf(options());
    const second = await identityOf(options({ enrolmentToken: undefined }));
    if (!first.ok || !second.ok) throw new Error('not enrolled');
    expect(second.value.hostId).toBe(first.value.hostId);
    expect(second.value.keyId).toBe(first.value.keyId);
    expect(edge.hosts.size).toBe(1);
  });

  test('never sends the private key', async () => {
    await identityOf(options());
    const { private_key } = JSON.parse(await readFile(join(directory, 'identity.json'), 'utf8'));
    expect(private_key.d).toBeTypeOf('string');
    expect(JSON.stringify([...edge.hosts.values()])).not.toContain(private_key.d);
  });

  test('A50 with a token that was used is refused', async () => {
    const enrolmentToken = edge.mintToken();
    expect((await identityOf(options({ enrolmentToken }))).ok).toBe(true);
    await rm(join(directory, 'identity.json'));
    expect(await identityOf(options({ enrolmentToken }))).toMatchObject({ code: 'enrollment_refused' });
  });

  test('without a token is refused in one clear line', async () => {
    const refused = await identityOf(options({ enrolmentToken: undefined }));
    expect(refused).toMatchObject({
      code: 'enrollment_refused',
      detail: 'this host is not enrolled and has no SANDGATE_ENROLLMENT_TOKEN',
    });
  });

  test('with an edge of another name is refused', async () => {
    const refused = await identityOf(options({ edgeOrigin: 'https://edge.example' }));
    expect(refused).toMatchObject({ code: 'enrollment_refused' });
  });

  test('with an edge that cannot be reached may be tried again', async () => {
    const enrolment = options();
    await edge.stop();
    expect(await identityOf(enrolment)).toMatchObject({ code: 'overloaded' });
    edge = await EdgeDouble.start();
  });

  test('is not done anew over a damaged identity', async () => {
    await writeFile(join(directory, 'identity.json'), '{"host_id":');
    expect(await identityOf(options())).toMatchObject({ code: 'internal' });
    expect(edge.hosts.size).toBe(0);
  });
});
