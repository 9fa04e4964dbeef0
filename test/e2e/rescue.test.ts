/** Sessions whose machine is gone, where no other can go on from their checkpoints: two real agents with two versions of runsc. */
import { readdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import * as z from 'zod';
import { SessionSchema } from '../../shared/session.ts';
import { SnapshotManifestSchema, WORKSPACE_FILE } from '../../shared/snapshot.ts';
import { SnapshotSchema } from '../../shared/snapshot-resource.ts';
import { PATIENCE_MS } from '../patience.ts';
import { type ApiClient, Refused, type SessionClient } from './client.ts';
import { useSecondHost } from './second-host.ts';
import { useStack } from './stack.ts';
import { until } from './until.ts';

const stack = useStack(() => ({ SANDGATE_POOL_CEILING: '0' }));
/** The same runsc under another name of its release: for all that is known, another program. */
const second = useSecondHost(stack, async (runscPath, stateDir) => {
  const path = join(stateDir, 'runsc');
  const renamed = 's/version release-/version 0.0~/;t;s/version 0.0~/version release-/';
  const script = `#!/bin/sh\n[ "$*" = --version ] && exec ${runscPath} --version | sed '${renamed}'\nexec ${runscPath} "$@"\n`;
  await writeFile(path, script, { mode: 0o755 });
  return path;
});

/** Nothing new goes to the first host meanwhile. */
async function openOnSecond(body: object = {}): Promise<SessionClient> {
  const { hostId } = stack().stack;
  await operate('POST', `/v1/hosts/${hostId}/cordon`);
  const session = await openThere(body);
  await operate('POST', `/v1/hosts/${hostId}/uncordon`);
  return session;
}

async function operate(method: 'POST' | 'DELETE', path: string): Promise<void> {
  const { url, operatorToken } = stack().stack;
  const headers = { authorization: `Bearer ${operatorToken}` };
  const answer = await fetch(`${url}${path}`, { method, headers });
  if (!answer.ok) throw new Error(await answer.text());
}

/** What the edge knows of its hosts may be some seconds old. */
function openThere(body: object): Promise<SessionClient> {
  return until('a session is made on the second host', PATIENCE_MS, async () => {
    const session = await stack().open({ ...body });
    if ((await session.describe()).host_id === second().hostId) return session;
    await session.delete();
    return undefined;
  });
}

/** Names of any byte, modes, links and times. */
const FILL = `import os
os.chdir(b'/workspace')
os.makedirs(b'deep/d\\xff\\xfe')
open(b'deep/d\\xff\\xfe/line\\nbreak', 'wb').write(bytes(range(256)) * 5000)
open(b'tool.sh', 'w').write('echo runs')
os.chmod(b'tool.sh', 0o751)
os.symlink(b'../\\xf0 nowhere', b'deep/link')
os.link(b'tool.sh', b'deep/same')
os.mkdir(b'closed'); open(b'closed/in', 'w').write('in'); os.chmod(b'closed', 0o500)
os.mkfifo(b'pipe', 0o640)
open(b'\\xc3\\xa4' * 120, 'w').close()
for name, at in ((b'tool.sh', 1_000_000_000.25), (b'deep', 86_400), (b'closed', 2_000_000_000)): os.utime(name, (at, at))
kept = 1`;
const LOOK = `import os, hashlib
def facts(path):
    s = os.lstat(path)
    what = os.readlink(path) if os.path.islink(path) else hashlib.sha256(open(path, 'rb').read()).hexdigest() if os.path.isfile(path) else None
    return (path, oct(s.st_mode), s.st_mtime_ns if not os.path.islink(path) else 0, s.st_nlink if not os.path.isdir(path) else 0, what)
repr([facts(os.path.join(base, name)) for base, dirs, files in os.walk(b'/workspace') for name in sorted(dirs + files)])`;

async function refusal(work: Promise<unknown>) {
  try {
    await work;
  } catch (error: unknown) {
    if (error instanceof Refused) return error.problem;
    throw error;
  }
  throw new Error('it was not refused');
}

const resume = (api: ApiClient, sessionId: string, body: object) =>
  api.json(SessionSchema, 'POST', `/v1/sessions/${sessionId}/resume`, { body });

async function act(session: SessionClient, name: string, body?: object) {
  const options = body === undefined ? {} : { body };
  return (await session.api.json(SessionSchema, 'POST', `${session.path}/${name}`, options)).value;
}

/** Where the stored workspace of the session lies, piece by piece. */
async function workspaceChunks(sessionId: string): Promise<string[]> {
  const files = await readdir(stack().stack.stateDir, { recursive: true, withFileTypes: true });
  for (const { name, parentPath } of files) {
    if (name !== 'manifest') continue;
    const manifest = SnapshotManifestSchema.parse(JSON.parse(await readFile(join(parentPath, name), 'utf8')));
    if (manifest.session_id !== sessionId) continue;
    const workspace = manifest.files.find((file) => file.name === WORKSPACE_FILE);
    return (workspace?.chunks ?? []).map(({ sha256 }) => join(parentPath, 'chunks', sha256));
  }
  return [];
}

async function flip(path: string): Promise<void> {
  const bytes = await readFile(path);
  bytes[bytes.length - 1] = (bytes.at(-1) ?? 0) ^ 1;
  await writeFile(path, bytes);
}

describe('the workspace of a session that no host can restore', () => {
  test('is what another host goes on with when that is asked for', { timeout: 300_000 }, async () => {
    const session = await openOnSecond();
    const rebuilt = await openOnSecond({ on_host_loss: 'rebuild' });
    expect(await session.py(FILL)).toMatchObject({ status: 'succeeded' });
    const before = (await session.py(LOOK)).value;
    await rebuilt.sh('echo kept >kept');
    const named = await rebuilt.api.json(SnapshotSchema, 'POST', `${rebuilt.path}/snapshots`, {
      body: { name: 'kept' },
    });
    expect(named.value.workspace).toEqual({ bytes: expect.any(Number) });
    await rebuilt.sh('echo lost >lost');
    const running = await session.detach('shell', { command: 'sleep 200' }, { timeoutMs: 300_000 });
    await until('it runs', PATIENCE_MS, async () =>
      (await session.execution(running.execution_id)).status === 'running' ? true : undefined,
    );
    const suspended = await act(session, 'suspend');

    // The second machine is gone for good.
    await operate('DELETE', `/v1/hosts/${second().hostId}`);
    const refused = await refusal(session.sh('true'));
    expect(refused).toMatchObject({ code: 'snapshot_mismatch' });
    expect(refused.detail).toContain('"rescue": "workspace"');
    expect((await session.describe()).state).toBe('suspended');

    const other = await stack().clientWith({ claims: { sub: 'somebody-else' } });
    const strange = await refusal(resume(other, session.id, { rescue: 'workspace' }));
    expect(strange).toMatchObject({ code: 'not_found' });

    const [chunk] = await workspaceChunks(session.id);
    await flip(z.string().parse(chunk));
    const damaged = await refusal(act(session, 'resume', { rescue: 'workspace' }));
    expect(damaged).toMatchObject({ code: 'snapshot_damaged' });
    expect((await session.describe()).state).toBe('suspended');
    expect((await session.execution(running.execution_id)).status).toBe('running');
    await flip(z.string().parse(chunk));

    const rescued = await act(session, 'resume', { rescue: 'workspace' });
    expect(rescued).toMatchObject({ state: 'running', host_id: stack().stack.hostId });
    expect(rescued.generation).toBe(suspended.generation + 1);
    expect(rescued.epoch).toBeGreaterThan(suspended.epoch);
    expect(await session.execution(running.execution_id)).toMatchObject({
      status: 'unknown',
      reason: 'rescued',
    });
    const looked = await session.py(LOOK);
    expect(looked).toMatchObject({ status: 'succeeded', state_lost: true, value: before });
    expect((await session.py('"kept" in globals()')).value).toBe('False');
    expect((await session.sh('sh ./tool.sh')).state_lost).toBe(false);
    // From here on it is a session like any other.
    await act(session, 'suspend');
    expect((await session.py(LOOK)).value).toBe(before);

    await until('the other session was rebuilt', PATIENCE_MS, async () =>
      (await rebuilt.describe()).host_id === stack().stack.hostId ? true : undefined,
    );
    expect(await rebuilt.sh('ls; cat kept')).toMatchObject({ stdout: 'kept\nkept\n', state_lost: true });

    const fromSnapshot = { from_snapshot: named.value.snapshot_id };
    const unmade = await refusal(stack().open(fromSnapshot));
    expect(unmade).toMatchObject({ code: 'snapshot_mismatch' });
    expect(unmade.detail).toContain('"rescue": "workspace"');
    const made = await stack().open({ ...fromSnapshot, rescue: 'workspace' });
    expect(await made.sh('cat kept')).toMatchObject({ stdout: 'kept\n', state_lost: true });
    expect(await made.describe()).toMatchObject(fromSnapshot);
    for (const one of [session, rebuilt, made]) await one.delete();
  });
});
