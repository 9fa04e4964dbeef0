import { runInDurableObject } from 'cloudflare:test';
import { env } from 'cloudflare:workers';
import { afterEach, describe, expect, test } from 'vitest';
import { success } from '../../../shared/errors.ts';
import { ToolSourceSchema } from '../../../shared/tool-source.ts';
import { archiveStream, takeArchive } from '../../../worker/objects/source/archive.ts';
import { SourceObjectStore } from '../../../worker/objects/source/store.ts';
import { ALL_SCOPES, tokenOf } from '../fixture-issuer.ts';
import { type ApiOptions, api, problemIn } from '../harness/api.ts';

const PATH = '/v1/tool_sources/server';
const DEFINITION = { kind: 'mcp_stdio', command: 'node', args: ['server.js'] };
const SECRET = { TOKEN: 'very-secret' };

async function ask(method: string, path: string, options: ApiOptions = {}) {
  return api(method, path, {
    ...options,
    token: await tokenOf({ claims: { tenant: 'acme', sub: 'alice', scope: ALL_SCOPES } }),
  });
}

function putArchive() {
  return ask('PUT', `${PATH}/archive`, {
    raw: new Uint8Array(1_024),
    headers: { 'content-type': 'application/x-tar' },
  });
}

async function environmentNames(): Promise<string[]> {
  const source = ToolSourceSchema.parse((await ask('GET', PATH)).json);
  return source.kind === 'mcp_stdio' ? source.env_names : [];
}

describe('the environment of a source that runs in a sandbox', () => {
  afterEach(async () => {
    await ask('DELETE', PATH);
  });

  test('stays where the program stays, and is given again where anything of it is another one', async () => {
    const created = await ask('PUT', PATH, { body: { ...DEFINITION, env: SECRET } });
    expect(created.status, created.text).toBe(201);
    const disabled = await ask('PUT', PATH, { body: { ...DEFINITION, disabled: true, description: 'off' } });
    expect(disabled.status, disabled.text).toBe(200);
    expect(await environmentNames()).toEqual(['TOKEN']);
    const changes = [
      { command: 'bash' },
      { args: ['-c', 'env'] },
      { cwd: '/tmp' },
      { image: 'another' },
      { network: { allow: ['attacker.example'] } },
    ];
    for (const change of changes) {
      const refused = await ask('PUT', PATH, { body: { ...DEFINITION, ...change } });
      expect(problemIn(refused)).toMatchObject({
        code: 'invalid_request',
        violations: [{ path: 'body.env', expected: expect.stringContaining(Object.keys(change).join()) }],
      });
    }
    expect(await environmentNames()).toEqual(['TOKEN']);
    const dropped = await ask('PUT', PATH, { body: { ...DEFINITION, command: 'bash', env: {} } });
    expect(dropped.status, dropped.text).toBe(200);
    expect(await environmentNames()).toEqual([]);
  });

  test('is not handed to files that are put after it', async () => {
    await ask('PUT', PATH, { body: { ...DEFINITION, env: SECRET } });
    const refused = await putArchive();
    expect(problemIn(refused)).toMatchObject({
      code: 'invalid_request',
      violations: [{ path: 'source.env' }],
    });
    await ask('PUT', PATH, { body: { ...DEFINITION, env: {} } });
    const kept = await putArchive();
    expect(kept.json).toEqual({ bytes: 1_024 });
    const given = await ask('PUT', PATH, { body: { ...DEFINITION, env: SECRET } });
    expect(given.json).toMatchObject({ env_names: ['TOKEN'], archive_bytes: 1_024 });
  });
});

test('of two archives that come at once, one is kept whole and the other is refused', async () => {
  await runInDurableObject(
    env.SOURCE.get(env.SOURCE.idFromName('acme:two-uploads')),
    async (_object, state) => {
      const store = new SourceObjectStore(state.storage);
      const mayKeep = async () => success(null);
      const bytesOf = (value: number) => new Uint8Array(600_000).fill(value);
      const slow = new TransformStream<Uint8Array, Uint8Array>();
      const writer = slow.writable.getWriter();
      const slowTaken = takeArchive(store, slow.readable, mayKeep);
      await writer.write(bytesOf(1));
      await writer.write(bytesOf(1));
      const quick = new Response(bytesOf(2)).body;
      expect(await takeArchive(store, quick, mayKeep)).toEqual(success(600_000));
      await writer.write(bytesOf(1));
      await writer.close();
      expect(await slowTaken).toMatchObject({ ok: false, code: 'transfer_failed' });
      const kept = new Uint8Array(await new Response(archiveStream(store)).arrayBuffer());
      expect(kept.length).toBe(600_000);
      expect(kept.every((value) => value === 2)).toBe(true);
      const rows = state.storage.sql.exec('SELECT DISTINCT isWhole FROM archive_part').toArray();
      expect(rows).toEqual([{ isWhole: 1 }]);
    },
  );
});
