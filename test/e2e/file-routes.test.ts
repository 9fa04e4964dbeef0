/** The files of a session over HTTP, through gateway, host and sandbox. */
import { createHash, hash, randomBytes } from 'node:crypto';
import { existsSync, readFileSync } from 'node:fs';
import { connect } from 'node:net';
import { describe, expect, test } from 'vitest';
import { type Problem, ProblemSchema } from '../../shared/problem.ts';
import { type FileListing, FileListingSchema } from '../../shared/transfer.ts';
import { readTar, tar } from '../fixtures/tar.ts';
import { PATIENCE_MS } from '../patience.ts';
import type { SessionClient } from './client.ts';
import { moveLargeFile, streamOf } from './large-file.ts';
import { useSession, useStack } from './stack.ts';
import { until } from './until.ts';

const MIB = 1024 * 1024;
const stack = useStack();

interface PutOptions {
  headers?: Record<string, string>;
}

function get(session: SessionClient, path: string, headers: Record<string, string> = {}): Promise<Response> {
  return session.api.fetch('GET', `${session.path}${path}`, { headers });
}

async function put(
  session: SessionClient,
  path: string,
  body: BodyInit,
  options: PutOptions = {},
): Promise<Response> {
  const headers = { authorization: `Bearer ${session.api.token}`, ...options.headers };
  // A body that is a stream needs to be said to be one.
  const init: RequestInit = Object.assign({ method: 'PUT', headers, body }, { duplex: 'half' });
  return fetch(`${session.api.url}${session.path}${path}`, init);
}

async function problemOf(response: Response): Promise<Problem> {
  expect(response.headers.get('content-type')).toBe('application/problem+json');
  return ProblemSchema.parse(await response.json());
}

async function listing(session: SessionClient, path: string): Promise<FileListing> {
  const response = await get(session, path);
  expect(response.status).toBe(200);
  return FileListingSchema.parse(await response.json());
}

describe('the bytes of a file', () => {
  const session = useSession(stack);

  test('are the same for the route, the file tool and the programs', async () => {
    const bytes = randomBytes(3 * MIB + 17);
    const written = await put(session(), '/files/data/random.bin?mode=0640', bytes);
    expect(written.status).toBe(201);
    expect(await written.json()).toMatchObject({
      size: bytes.length,
      sha256: hash('sha256', bytes),
      created: true,
      etag: written.headers.get('etag'),
    });
    const seen = await session().sh(
      'cd /workspace/data; sha256sum < random.bin; stat -c %a random.bin; ls -A',
    );
    expect(seen.stdout).toBe(`${hash('sha256', bytes)}  -\n640\nrandom.bin\n`);
    const read = await get(session(), '/files/data/random.bin');
    expect(read.headers.get('content-length')).toBe(String(bytes.length));
    expect(read.headers.get('etag')).toBe(written.headers.get('etag'));
    expect(Buffer.from(await read.arrayBuffer()).equals(bytes)).toBe(true);
  });

  test('come by range, and the whole file to a range of another version', async () => {
    const first = await put(session(), '/files/range', '0123456789');
    const etag = first.headers.get('etag') ?? '';
    const ranged = async (range: string, more: Record<string, string> = {}) => {
      const response = await get(session(), '/files/range', { range, ...more });
      return [response.status, response.headers.get('content-range'), await response.text()];
    };
    expect(await ranged('bytes=0-0')).toEqual([206, 'bytes 0-0/10', '0']);
    expect(await ranged('bytes=7-')).toEqual([206, 'bytes 7-9/10', '789']);
    expect(await ranged('bytes=-4')).toEqual([206, 'bytes 6-9/10', '6789']);
    expect(await ranged('bytes=5-999')).toEqual([206, 'bytes 5-9/10', '56789']);
    expect(await ranged('bytes=0-1,4-5')).toEqual([200, null, '0123456789']);
    expect(await ranged('bytes=1-2', { 'if-range': etag })).toEqual([206, 'bytes 1-2/10', '12']);
    const beyond = await get(session(), '/files/range', { range: 'bytes=10-' });
    expect(beyond.headers.get('content-range')).toBe('bytes */10');
    expect(await problemOf(beyond)).toMatchObject({ status: 416, code: 'range_not_satisfiable' });
    await session().sh('printf abcdefghij > /workspace/range');
    expect(await ranged('bytes=1-2', { 'if-range': etag })).toEqual([200, null, 'abcdefghij']);
  });

  test('are told of without being sent, and not sent again while they are the same', async () => {
    const etag = (await put(session(), '/files/head', 'hello')).headers.get('etag') ?? '';
    const head = await session().api.fetch('HEAD', `${session().path}/files/head`);
    expect(head.status).toBe(200);
    expect(head.headers.get('content-length')).toBe('5');
    expect(head.headers.get('etag')).toBe(etag);
    expect((await get(session(), '/files/head', { 'if-none-match': etag })).status).toBe(304);
    const other = await get(session(), '/files/head', { 'if-match': '"other"' });
    expect(await problemOf(other)).toMatchObject({ status: 412, code: 'precondition_failed' });
  });

  test('replace only the version that was meant, and make only what is new', async () => {
    const first = await put(session(), '/files/version', 'one', { headers: { 'if-none-match': '*' } });
    expect(first.status).toBe(201);
    const etag = first.headers.get('etag') ?? '';
    const again = await put(session(), '/files/version', 'two', { headers: { 'if-none-match': '*' } });
    expect(await problemOf(again)).toMatchObject({ status: 412 });
    expect((await put(session(), '/files/version', 'two', { headers: { 'if-match': etag } })).status).toBe(
      200,
    );
    const stale = await put(session(), '/files/version', 'three', { headers: { 'if-match': etag } });
    expect(await problemOf(stale)).toMatchObject({ status: 412 });
    const digest = `sha-256=:${createHash('sha256').update('four').digest('base64')}:`;
    const wrong = await put(session(), '/files/version', 'five', { headers: { 'content-digest': digest } });
    expect(await problemOf(wrong)).toMatchObject({ status: 422, code: 'digest_mismatch' });
    expect(await (await get(session(), '/files/version')).text()).toBe('two');
    expect(
      (await put(session(), '/files/version', 'four', { headers: { 'repr-digest': digest } })).status,
    ).toBe(200);
  });

  test('R16 have any name', async () => {
    const names = [
      '日本 語 😀.txt',
      'a#b?c%41.txt',
      'q\'"`$(id).txt',
      '-rf',
      'tab\there',
      'two\nlines',
      ' . ',
    ];
    for (const name of names) {
      const url = `/files/n/${encodeURIComponent(name)}`;
      expect((await put(session(), url, name)).status).toBe(201);
      const read = await get(session(), url);
      const disposition = read.headers.get('content-disposition') ?? '';
      expect(decodeURIComponent(disposition.split("''")[1] ?? '')).toBe(name);
      expect(await read.text()).toBe(name);
    }
    expect((await put(session(), '/files/n/raw%ff%fe', 'raw')).status).toBe(201);
    expect(await (await get(session(), '/files/n/raw%FF%FE')).text()).toBe('raw');
    const { entries } = await listing(session(), '/files/n/?list');
    expect(new Set(entries.map(({ name, name_base64 }) => name ?? `base64 ${name_base64}`))).toEqual(
      new Set([...names, `base64 ${Buffer.from('raw\xff\xfe', 'latin1').toString('base64')}`]),
    );
    expect((await session().sh('ls -1 /workspace/n | wc -l; rm -r /workspace/n')).stdout).toMatch(/^\d+\n$/);
  });

  test('R51 are those of the sandbox, wherever its links lead', async () => {
    const sentinel = '/etc/planted-by-file-routes';
    await session().sh(
      `cd /workspace; ln -sfn /etc out; ln -sfn ${sentinel} dangling; mkdir -p d; ln -sfn / d/root`,
    );
    const passwd = await get(session(), '/files/out/hostname');
    if (passwd.status === 200) expect(await passwd.text()).not.toBe(readFileSync('/etc/hostname', 'utf8'));
    for (const path of ['dangling', 'out/planted-by-file-routes', 'd/root/etc/planted-by-file-routes']) {
      expect(await problemOf(await put(session(), `/files/${path}`, 'x'))).toMatchObject({
        status: 403,
        code: 'permission_denied',
      });
    }
    const climbing = await put(session(), `/files/..%2F..%2F..${encodeURIComponent(sentinel)}`, 'x');
    expect(climbing.status).toBe(403);
    expect(existsSync(sentinel)).toBe(false);
    expect((await put(session(), '/files/%2Ftmp%2Fabsolute', 'x')).status).toBe(201);
    expect(
      (await session().sh('cat /tmp/absolute; rm /workspace/out /workspace/dangling /workspace/d/root'))
        .stdout,
    ).toBe('x');
  });

  test('are not those of what is no file', async () => {
    await session().sh('cd /workspace; mkfifo -m 666 pipe; mkdir -p folder/in');
    for (const [path, code] of [
      ['pipe', 'not_a_regular_file'],
      ['%2Fdev%2Fzero', 'not_a_regular_file'],
      ['folder', 'is_directory'],
      ['folder/absent', 'not_found'],
      ['pipe/x', 'not_a_directory'],
    ]) {
      const problem = await problemOf(await get(session(), `/files/${path}`));
      expect([problem.code, path, problem.detail.length > 0]).toEqual([code, path, true]);
    }
    expect(await problemOf(await put(session(), '/files/pipe', 'x'))).toMatchObject({
      code: 'not_a_regular_file',
    });
    expect(await problemOf(await put(session(), '/files/folder', 'x'))).toMatchObject({
      code: 'is_directory',
    });
  });

  test('go, and folders with or without what is in them', async () => {
    await session().sh('cd /workspace; mkdir -p gone/deep; touch gone/deep/f');
    const remove = (path: string) => session().api.fetch('DELETE', `${session().path}/files/${path}`);
    expect(await problemOf(await remove('gone'))).toMatchObject({ status: 409, code: 'directory_not_empty' });
    expect((await remove('gone/deep/f')).status).toBe(204);
    expect(await problemOf(await remove('gone/deep/f'))).toMatchObject({ status: 404 });
    expect((await remove('gone?recursive')).status).toBe(204);
    expect((await session().sh('ls -d /workspace/gone')).exit_code).not.toBe(0);
  });

  test('move while a call runs, which sees them', async () => {
    const command = 'until [ -e /workspace/go ]; do sleep 0.05; done; echo went';
    const { execution_id: id } = await session().detach('shell', { command });
    expect((await put(session(), '/files/meanwhile', randomBytes(MIB))).status).toBe(201);
    expect((await session().execution(id)).finished_at).toBeNull();
    expect((await put(session(), '/files/go', '')).status).toBe(201);
    expect(await session().ended(id, PATIENCE_MS)).toMatchObject({ status: 'succeeded', stdout: 'went\n' });
  });
});

describe('a folder', () => {
  const session = useSession(stack);

  test('of ten thousand entries is listed page by page, each entry once', async () => {
    await session().py(
      'import os\nos.mkdir("/workspace/many")\nfor i in range(10_000): open(f"/workspace/many/f{i}", "w").close()',
    );
    const seen: string[] = [];
    let cursor: string | null = '0';
    for (let page = 0; cursor !== null; page += 1) {
      expect(page).toBeLessThan(50);
      const listed: FileListing = await listing(session(), `/files/many/?list&cursor=${cursor}`);
      expect(listed.entries.length).toBeLessThanOrEqual(1_000);
      seen.push(...listed.entries.map(({ name }) => name ?? ''));
      cursor = listed.next_cursor;
    }
    expect(seen.length).toBe(10_000);
    expect(new Set(seen).size).toBe(10_000);
  });

  test('says of each entry what it is', async () => {
    await session().sh(
      'mkdir /workspace/kinds; cd /workspace/kinds; printf 123 > f; chmod 750 f; mkdir d; ln -s f l; mkfifo p; touch -d 2001-02-03T04:05:06Z f',
    );
    const { entries } = await listing(session(), '/files/kinds?list');
    const found = Object.fromEntries(entries.map((entry) => [entry.name, entry]));
    expect(found).toMatchObject({
      f: { type: 'file', size: 3, mode: '0750', modified_at: '2001-02-03T04:05:06.000Z' },
      d: { type: 'directory' },
      l: { type: 'symlink' },
      p: { type: 'fifo' },
    });
  });

  test('tells its changes as they happen', async () => {
    const abort = new AbortController();
    const response = await session().api.fetch('GET', `${session().path}/files/?watch`, {
      signal: abort.signal,
    });
    const reader = response.body?.getReader();
    if (reader === undefined) throw new Error('no events');
    const decoder = new TextDecoder();
    let text = '';
    const read = async (what: string) => {
      while (!text.includes(what)) {
        const { value, done } = await reader.read();
        if (done) throw new Error(`the watch ended: ${text}`);
        text += decoder.decode(value, { stream: true });
      }
    };
    await read(': watching');
    await put(session(), '/files/seen', 'x');
    await read('"moved_to","name":"seen"');
    await session().sh('rm /workspace/seen');
    await read('"deleted","name":"seen"');
    abort.abort();
  });
});

describe('an archive', () => {
  const session = useSession(stack);

  test('goes from one session into another with modes and links', async () => {
    await session().sh(
      'cd /workspace; mkdir -p a/b; printf 1 > a/b/f; chmod 711 a/b/f; ln -s b/f a/l; ln a/b/f a/h; ln -s /etc a/out',
    );
    const response = await get(session(), '/archive');
    expect(response.headers.get('content-type')).toBe('application/x-tar');
    const archive = Buffer.from(await response.arrayBuffer());
    expect(readTar(archive)).toEqual(
      expect.arrayContaining([expect.objectContaining({ name: 'a/out', type: '2', link: '/etc' })]),
    );
    const other = await stack().open();
    try {
      const taken = await put(other, '/archive?path=into/here', archive);
      expect(await taken.json()).toEqual({ entries: readTar(archive).length, bytes: archive.length });
      const seen = await other.sh('cd /workspace/into/here/a; cat l; stat -c "%a %h" h; readlink l out');
      expect(seen.stdout).toBe('1711 2\nb/f\n/etc\n');
    } finally {
      await other.delete();
    }
  });

  test.each([
    ['climbs', [{ name: '../escaped', content: 'x' }]],
    ['is absolute', [{ name: '/tmp/escaped', content: 'x' }]],
    [
      'goes through its own link',
      [
        { name: 'l', type: '2', link: '/tmp' },
        { name: 'l/escaped', content: 'x' },
      ],
    ],
    ['has a device', [{ name: 'null', type: '3' }]],
  ])('that %s is refused', async (_, entries) => {
    const refused = await put(session(), '/archive?path=hostile', tar(entries));
    expect(await problemOf(refused)).toMatchObject({ status: 422, code: 'archive_refused' });
    expect((await session().sh('ls /tmp/escaped /workspace/escaped 2>/dev/null | wc -l')).stdout.trim()).toBe(
      '0',
    );
  });
});

describe('what is cut', () => {
  const session = useSession(stack);

  test.each([
    ['a body of known length, half closed', true, 'end'],
    ['a body in chunks, half closed', false, 'end'],
    ['a body of known length, dropped', true, 'destroy'],
    ['a body in chunks, dropped', false, 'destroy'],
  ] as const)('%s: the old file stays, and no other', async (_, isOfKnownLength, how) => {
    await put(session(), '/files/keep', 'old');
    const url = new URL(`${session().api.url}${session().path}/files/keep`);
    const socket = connect({ host: url.hostname, port: Number(url.port), allowHalfOpen: true });
    const closed = new Promise<void>((resolve) => socket.once('close', () => resolve()));
    socket.on('error', () => undefined);
    let answer = '';
    socket.on('data', (bytes: Buffer) => {
      answer += bytes.toString('latin1');
    });
    const length = isOfKnownLength ? 'content-length: 5000000' : 'transfer-encoding: chunked';
    socket.write(
      `PUT ${url.pathname} HTTP/1.1\r\nhost: ${url.host}\r\nauthorization: Bearer ${session().api.token}\r\n${length}\r\n\r\n`,
    );
    const bytes = Buffer.alloc(200_000, 'n');
    socket.write(
      isOfKnownLength ? bytes : Buffer.concat([Buffer.from('30d40\r\n'), bytes, Buffer.from('\r\n')]),
    );
    await until('the upload has begun', PATIENCE_MS, async () => {
      const seen = await session().sh('ls -A /workspace | grep -c "^.sandgate-"');
      return seen.stdout.trim() === '1' ? true : undefined;
    });
    socket[how]();
    await until('the upload was undone', PATIENCE_MS, async () => {
      const seen = await session().sh('ls -A /workspace; cat /workspace/keep');
      return seen.stdout === 'keep\nold' ? true : undefined;
    });
    if (how === 'end')
      await until('the answer came', PATIENCE_MS, () => (answer.includes('503') ? true : undefined));
    socket.destroy();
    await closed;
  });

  test('downloads: their places are free again', async () => {
    await put(session(), '/files/big', Buffer.alloc(8 * MIB));
    for (let round = 0; round < 10; round += 1) {
      const abort = new AbortController();
      const response = await until('a place is free', PATIENCE_MS, async () => {
        const tried = await session().api.fetch('GET', `${session().path}/files/big`, {
          signal: abort.signal,
        });
        return tried.status === 200 ? tried : undefined;
      });
      await response.body?.getReader().read();
      abort.abort();
    }
    await until('all places are free', PATIENCE_MS, async () => {
      const all = await Promise.all(Array.from({ length: 4 }, () => get(session(), '/files/big')));
      const statuses = all.map(({ status }) => status);
      for (const { body } of all) await body?.cancel();
      return statuses.every((status) => status === 200) ? true : undefined;
    });
  });

  test('with its sandbox: the download is no whole file, and the next call has a new sandbox', async () => {
    // More than the sockets between the sandbox and this reader hold.
    await put(session(), '/files/big', Buffer.alloc(64 * MIB));
    const response = await get(session(), '/files/big');
    const reader = response.body?.getReader();
    await reader?.read();
    await session()
      .sh('kill -9 -1')
      .catch(() => undefined);
    const rest = (async () => {
      for (;;) {
        const piece = await reader?.read();
        if (piece === undefined || piece.done) return 'whole';
      }
    })();
    await expect(rest).rejects.toThrow();
    expect((await put(session(), '/files/after', 'x')).status).toBe(201);
  });
});

describe('a full disk', () => {
  const session = useSession(stack);

  test('is said, and leaves nothing of the file', async () => {
    const small = await stack().open({ limits: { workspace_bytes: 8 * MIB } });
    try {
      const full = await put(small, '/files/full', streamOf(16 * MIB));
      expect(await problemOf(full)).toMatchObject({ status: 507, code: 'no_space' });
      expect((await small.sh('ls -A /workspace')).stdout).toBe('');
      expect((await put(small, '/files/fits', Buffer.alloc(MIB))).status).toBe(201);
    } finally {
      await small.delete();
    }
  });

  test('or a condition that does not hold is said to who is still sending', async () => {
    const headers = { 'If-Match': '"none"' };
    const refused = await put(session(), '/files/conditional', streamOf(16 * MIB), { headers });
    expect(await problemOf(refused)).toMatchObject({ status: 412 });
  });

  test('four writers of one file leave the whole of one of them', async () => {
    const contents = ['a', 'b', 'c', 'd'].map((letter) => Buffer.alloc(2 * MIB, letter));
    const written = await Promise.all(contents.map((content) => put(session(), '/files/contested', content)));
    expect(written.map(({ ok }) => ok)).toEqual([true, true, true, true]);
    const read = Buffer.from(await (await get(session(), '/files/contested')).arrayBuffer());
    expect(contents.some((content) => content.equals(read))).toBe(true);
  });
});

describe('a large file', () => {
  test('goes up and down through little memory of the host', async () => {
    await moveLargeFile(stack(), 256 * MIB);
  }, 600_000);
});
