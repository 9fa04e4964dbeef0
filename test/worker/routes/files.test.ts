/** The files of a session over HTTP: what is asked of the host, and what its answers become. */
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { SessionSchema } from '../../../shared/session.ts';
import {
  type FileRequest,
  MAX_TRANSFERS,
  TRANSFER_CHUNK_BYTES,
  TRANSFER_WINDOW_BYTES,
} from '../../../shared/transfer.ts';
import type { HostDouble } from '../../fixtures/host-double/host-double.ts';
import { DOUBLE_FACTS, type TransferDouble } from '../../fixtures/host-double/transfer-double.ts';
import { tokenOf } from '../fixture-issuer.ts';
import { type ApiOptions, api, problemIn, request } from '../harness/api.ts';
import { connectFakeHost } from '../harness/fake-host.ts';

let host: HostDouble;
let base: string;
let token: string;
const begun: TransferDouble[] = [];

beforeEach(async () => {
  host = await connectFakeHost();
  token = await tokenOf();
  const created = await api('POST', '/v1/sessions', { token, body: {} });
  base = `/v1/sessions/${SessionSchema.parse(created.json).session_id}`;
  begun.length = 0;
});
vi.setConfig({ testTimeout: 30_000 });
afterEach(() => {
  expect(host.failures).toEqual([]);
  host.close();
});

function play(script: (transfer: TransferDouble) => void | Promise<void>): void {
  host.transferScript = (transfer) => {
    begun.push(transfer);
    return script(transfer);
  };
}

/** Gives this content whole, whatever is asked. */
function give(content: string): void {
  play(async (transfer) => {
    const bytes = new TextEncoder().encode(content);
    const facts = { ...DOUBLE_FACTS, size: bytes.length };
    transfer.head({ answer: 'whole', facts, length: bytes.length });
    await transfer.data(bytes);
    transfer.done({ bytes: bytes.length });
  });
}

function takeAll(): void {
  play(async (transfer) => {
    transfer.head();
    while (!transfer.isWhole && !transfer.isCancelled) {
      const before = transfer.receivedBytes;
      await transfer.until(() => transfer.receivedBytes > before || transfer.isWhole || transfer.isCancelled);
      transfer.taken();
    }
    if (transfer.isCancelled) return transfer.failed('transfer_failed');
    transfer.done({
      bytes: transfer.receivedBytes,
      created: true,
      facts: DOUBLE_FACTS,
      sha256: '0'.repeat(64),
    });
  });
}

const call = (method: string, path: string, options: ApiOptions = {}) =>
  api(method, `${base}${path}`, { token, ...options });
const asked = (): FileRequest | undefined => {
  const request = begun.at(-1)?.request;
  return request !== undefined && 'path' in request ? request : undefined;
};
const pathOf = (): string => {
  const path = asked()?.path ?? '';
  return Array.from(atob(path), (character) => character).join('');
};

describe('the path', () => {
  test.each([
    ['a.txt', 'a.txt'],
    ['deep/er/a.txt', 'deep/er/a.txt'],
    ['%ff%00x'.replace('%00', '%01'), '\u00ff\u0001x'],
    ['%E6%97%A5%20x', '\u00e6\u0097\u00a5 x'],
    ['a%2Fb', 'a/b'],
    ['%2Ftmp%2Fx', '/tmp/x'],
    ['/tmp/x', '/tmp/x'],
    ['a%23b%3Fc%2541', 'a#b?c%41'],
    ['100%', '100%'],
    ['x/..%2Fy', 'x/../y'],
  ])('%j reaches the host as its bytes', async (url, bytes) => {
    give('x');
    expect((await call('GET', `/files/${url}`)).status).toBe(200);
    expect(pathOf()).toBe(bytes);
  });

  test('with a zero byte, or longer than any, is refused here', async () => {
    give('x');
    for (const url of ['a%00b', 'x'.repeat(4096)]) {
      const answer = await call('GET', `/files/${url}`);
      expect(problemIn(answer)).toMatchObject({ code: 'invalid_request' });
    }
    expect(begun).toEqual([]);
  });
});

describe('GET', () => {
  test('gives the bytes, and what they are', async () => {
    give('hello');
    const answer = await call('GET', '/files/dir/r%C3%A9sum%C3%A9%20%22x%22.PNG');
    expect(answer).toMatchObject({ status: 200, text: 'hello' });
    expect(Object.fromEntries(answer.headers)).toMatchObject({
      'content-type': 'image/png',
      'content-disposition': "attachment; filename*=UTF-8''r%C3%A9sum%C3%A9%20%22x%22.PNG",
      'accept-ranges': 'bytes',
      'cache-control': 'no-store, no-transform',
      'x-content-type-options': 'nosniff',
      etag: '"one"',
      'last-modified': 'Tue, 14 Nov 2023 22:13:20 GMT',
    });
  });

  test.each([
    ['bytes=0-4', { first: 0, last: 4 }],
    ['bytes=5-', { first: 5, last: null }],
    ['bytes=-3', { suffix: 3 }],
    ['bytes=-0', { suffix: 0 }],
    ['BYTES=1-1', { first: 1, last: 1 }],
    ['bytes=4-1', null],
    ['bytes=0-1,3-4', null],
    ['bytes=', null],
    ['bytes=a-b', null],
    ['items=0-1', null],
    ['bytes=99999999999999999999-', null],
  ])('with Range %j asks for it', async (range, expected) => {
    give('x');
    await call('GET', '/files/f', { headers: { Range: range } });
    expect(asked()).toMatchObject({ operation: 'read', range: expected });
  });

  test('of a part is 206 and says which', async () => {
    play(async (transfer) => {
      transfer.head({ answer: 'part', facts: { ...DOUBLE_FACTS, size: 10 }, offset: 6, length: 3 });
      await transfer.data(new TextEncoder().encode('678'));
      transfer.done();
    });
    const answer = await call('GET', '/files/f', { headers: { Range: 'bytes=6-8' } });
    expect(answer).toMatchObject({ status: 206, text: '678' });
    expect(answer.headers.get('Content-Range')).toBe('bytes 6-8/10');
  });

  test('of a range outside of the file says how long it is', async () => {
    play((transfer) => transfer.failed('range_not_satisfiable', '"f": the file has 10 bytes', 10));
    const answer = await call('GET', '/files/f', { headers: { Range: 'bytes=10-' } });
    expect(problemIn(answer)).toMatchObject({ status: 416, code: 'range_not_satisfiable' });
    expect(answer.headers.get('Content-Range')).toBe('bytes */10');
  });

  test('passes conditions on, and 304 when nothing changed', async () => {
    play((transfer) => {
      transfer.head({ answer: 'not_modified', facts: DOUBLE_FACTS, length: 0 });
      transfer.done();
    });
    const headers = { 'If-None-Match': '"x", W/"one"', 'If-Match': '*', 'If-Range': '"y"' };
    const answer = await call('GET', '/files/f', { headers });
    expect(answer).toMatchObject({ status: 304, text: '' });
    expect(answer.headers.get('ETag')).toBe('"one"');
    expect(asked()).toMatchObject({ if_none_match: ['"x"', 'W/"one"'], if_match: '*', if_range: '"y"' });
  });

  test.each(['one', '"a" "b"', '""x', '"a",'])('refuses If-Match %j', async (tags) => {
    const answer = await call('GET', '/files/f', { headers: { 'If-Match': tags } });
    expect(problemIn(answer).violations).toMatchObject([{ path: 'header.If-Match' }]);
  });

  test('never takes a date for the name of a version', async () => {
    give('x');
    await call('GET', '/files/f', {
      headers: { Range: 'bytes=0-', 'If-Range': 'Tue, 14 Nov 2023 22:13:20 GMT' },
    });
    expect(asked()).toMatchObject({ if_range: '"-"' });
  });

  test('HEAD asks for no bytes, and has the headers of GET', async () => {
    play((transfer) => {
      transfer.head({ answer: 'whole', facts: { ...DOUBLE_FACTS, size: 9 }, length: 9 });
      transfer.done();
    });
    const answer = await call('HEAD', '/files/f');
    expect(answer).toMatchObject({ status: 200, text: '' });
    expect(answer.headers.get('Content-Length')).toBe('9');
    expect(asked()).toMatchObject({ head: true });
  });

  test('of an empty file is empty', async () => {
    play((transfer) => {
      transfer.head({ answer: 'whole', facts: { ...DOUBLE_FACTS, size: 0 }, length: 0 });
      transfer.done();
    });
    const answer = await call('GET', '/files/f');
    expect(answer).toMatchObject({ status: 200, text: '' });
  });

  test.each([
    ['not_found', 404],
    ['is_directory', 409],
    ['not_a_regular_file', 409],
    ['permission_denied', 403],
    ['precondition_failed', 412],
    ['too_many_transfers', 429],
    ['a code that the edge does not know', 503],
  ])('that fails with %s is a problem that names the path', async (code, status) => {
    play((transfer) => transfer.failed(code, '"f": it failed'));
    const problem = problemIn(await call('GET', '/files/f'));
    expect(problem).toMatchObject({ status, detail: '"f": it failed' });
  });

  test('holds the host back while its client does not read, and no longer', async () => {
    const total = 4 * TRANSFER_WINDOW_BYTES;
    let isFull = false;
    play(async (transfer) => {
      transfer.head({ answer: 'whole', facts: { ...DOUBLE_FACTS, size: total }, length: total });
      for (let sent = 0; sent < total; sent += TRANSFER_CHUNK_BYTES) {
        const isHeld = transfer.sentBytes - transfer.takenBytes >= TRANSFER_WINDOW_BYTES;
        isFull ||= isHeld;
        await transfer.data(new Uint8Array(TRANSFER_CHUNK_BYTES));
      }
      transfer.done({ bytes: total });
    });
    const response = await request('GET', `${base}/files/f`, { token });
    await expect.poll(() => isFull).toBe(true);
    const transfer = begun[0];
    expect(transfer === undefined ? 0 : transfer.sentBytes - transfer.takenBytes).toBeLessThanOrEqual(
      TRANSFER_WINDOW_BYTES,
    );
    expect((await response.arrayBuffer()).byteLength).toBe(total);
  });

  test('that its client leaves is cancelled at the host', async () => {
    play(async (transfer) => {
      const total = 8 * TRANSFER_WINDOW_BYTES;
      transfer.head({ answer: 'whole', facts: { ...DOUBLE_FACTS, size: total }, length: total });
      while (!transfer.isCancelled && transfer.sentBytes < total) {
        await transfer.data(new Uint8Array(TRANSFER_CHUNK_BYTES));
      }
    });
    const response = await request('GET', `${base}/files/f`, { token });
    const reader = response.body?.getReader();
    await reader?.read();
    await reader?.cancel();
    await expect.poll(() => begun[0]?.isCancelled).toBe(true);
  });

  test('that failed is let go of, also while its client does not read', async () => {
    play(async (transfer) => {
      const total = 2 * TRANSFER_WINDOW_BYTES;
      transfer.head({ answer: 'whole', facts: { ...DOUBLE_FACTS, size: total }, length: total });
      while (transfer.sentBytes < TRANSFER_WINDOW_BYTES)
        await transfer.data(new Uint8Array(TRANSFER_CHUNK_BYTES));
      transfer.failed('transfer_failed');
    });
    const response = await request('GET', `${base}/files/f`, { token });
    await expect.poll(() => begun[0]?.sentBytes).toBe(TRANSFER_WINDOW_BYTES);
    // Whatever comes to the session after it has seen that it failed.
    play((transfer) => transfer.failed('not_found'));
    await call('GET', '/files/g');
    const reader = response.body?.getReader();
    let bytes = 0;
    const readAll = async () => {
      for (;;) bytes += (await reader?.read())?.value?.byteLength ?? 0;
    };
    await expect(readAll()).rejects.toThrow();
    expect(bytes).toBeLessThan(TRANSFER_WINDOW_BYTES / 2);
  });

  test('that breaks off in the middle is no whole answer', async () => {
    play(async (transfer) => {
      transfer.head({ answer: 'whole', facts: { ...DOUBLE_FACTS, size: 10 }, length: 10 });
      await transfer.data(new Uint8Array(4));
      transfer.failed('transfer_failed');
    });
    const response = await request('GET', `${base}/files/f`, { token });
    await expect(response.arrayBuffer()).rejects.toThrow();
  });
});

describe('PUT', () => {
  test('sends the bytes and says what was written', async () => {
    takeAll();
    const answer = await call('PUT', '/files/a/b?mode=0755', { raw: 'hello' });
    expect(answer.status).toBe(201);
    expect(answer.json).toEqual({ size: 5, sha256: '0'.repeat(64), created: true, etag: '"one"' });
    expect(answer.headers.get('ETag')).toBe('"one"');
    expect(asked()).toMatchObject({ operation: 'write', mode: 0o755, sha256: null, if_match: null });
    expect(new TextDecoder().decode(begun[0]?.received[0])).toBe('hello');
  });

  test('of no bytes makes an empty file', async () => {
    takeAll();
    expect((await call('PUT', '/files/empty', { raw: '' })).status).toBe(201);
    expect(begun[0]?.receivedBytes).toBe(0);
  });

  test('sends no more than the window until the host has taken some', async () => {
    play(async (transfer) => {
      transfer.head();
      await transfer.until(() => transfer.receivedBytes >= TRANSFER_WINDOW_BYTES);
      expect(transfer.receivedBytes).toBe(TRANSFER_WINDOW_BYTES);
      while (!transfer.isWhole) {
        transfer.taken();
        const before = transfer.receivedBytes;
        await transfer.until(() => transfer.receivedBytes > before || transfer.isWhole);
        expect(transfer.receivedBytes - before).toBeLessThanOrEqual(TRANSFER_WINDOW_BYTES);
      }
      transfer.done({ bytes: transfer.receivedBytes, facts: DOUBLE_FACTS, sha256: '0'.repeat(64) });
    });
    const bytes = new Uint8Array(5 * TRANSFER_WINDOW_BYTES + 7);
    const answer = await call('PUT', '/files/f', { raw: bytes });
    expect(answer).toMatchObject({ status: 200, json: { size: bytes.length, created: false } });
  });

  test('passes conditions and the digest on', async () => {
    takeAll();
    const sha256 = 'ab'.repeat(32);
    const base64 = btoa(String.fromCharCode(...Array.from({ length: 32 }, () => 0xab)));
    await call('PUT', '/files/f', {
      raw: 'x',
      headers: { 'If-None-Match': '*', 'Content-Digest': `sha-512=:AAAA:, sha-256=:${base64}:` },
    });
    expect(asked()).toMatchObject({ if_none_match: '*', sha256 });
    const wrong = await call('PUT', '/files/f', { raw: 'x', headers: { 'Repr-Digest': 'sha-256=:AAAA:' } });
    expect(problemIn(wrong).violations).toMatchObject([{ path: 'header.Repr-Digest' }]);
  });

  test('that the host refuses is answered, though its bytes were not taken', async () => {
    play(async (transfer) => {
      transfer.head();
      await transfer.until(() => transfer.receivedBytes > 0);
      transfer.failed('no_space', '"f": no space left');
    });
    const answer = await call('PUT', '/files/f', { raw: new Uint8Array(3 * TRANSFER_WINDOW_BYTES) });
    expect(problemIn(answer)).toMatchObject({ status: 507, code: 'no_space' });
  });

  test.each([
    ['a mode that is none', '/files/f?mode=999', {}, 'invalid_request'],
    ['special bits', '/files/f?mode=4755', {}, 'invalid_request'],
    ['a coding', '/files/f', { 'Content-Encoding': 'gzip' }, 'unsupported_media_type'],
  ])('of %s is refused here', async (_, path, headers, code) => {
    expect(problemIn(await call('PUT', path, { raw: 'x', headers }))).toMatchObject({ code });
    expect(begun).toEqual([]);
  });
});

describe('other routes', () => {
  test('list a folder', async () => {
    const listing = {
      entries: [
        { name: 'a', type: 'file', size: 1, mode: '0644', modified_at: null, etag: '"1"' },
        { name_base64: '//4=', type: 'directory', size: 0, mode: '0755', modified_at: null, etag: '"2"' },
      ],
      next_cursor: '2',
    };
    play(async (transfer) => {
      transfer.head();
      await transfer.data(new TextEncoder().encode(JSON.stringify(listing)));
      transfer.done();
    });
    const answer = await call('GET', '/files/dir/?list&cursor=4&limit=2');
    expect(answer).toMatchObject({ status: 200, json: listing });
    expect(asked()).toMatchObject({ operation: 'list', cursor: 4, limit: 2 });
    await call('GET', '/files/?list');
    expect(pathOf()).toBe('.');
  });

  test('watch a folder as events', async () => {
    play(async (transfer) => {
      transfer.head();
      await transfer.data(
        new TextEncoder().encode('{"change":"created","name":"a","directory":false}\n{"ch'),
      );
      await transfer.data(new TextEncoder().encode('ange":"gone","directory":true}\n'));
      transfer.done();
    });
    const answer = await call('GET', '/files/?watch');
    expect(answer.headers.get('Content-Type')).toBe('text/event-stream');
    expect(answer.text).toBe(
      ': watching\n\n' +
        'event: change\ndata: {"change":"created","name":"a","directory":false}\n\n' +
        'event: change\ndata: {"change":"gone","directory":true}\n\n' +
        'event: end\ndata: {"reason":"gone"}\n\n',
    );
  });

  test('delete', async () => {
    play((transfer) => transfer.done({ entries: 3 }));
    expect((await call('DELETE', '/files/dir?recursive')).status).toBe(204);
    expect(asked()).toMatchObject({ operation: 'delete', recursive: true });
    play((transfer) => transfer.failed('directory_not_empty', '"dir": not empty'));
    expect(problemIn(await call('DELETE', '/files/dir'))).toMatchObject({ status: 409 });
  });

  test('give and take an archive', async () => {
    play(async (transfer) => {
      transfer.head();
      await transfer.data(new Uint8Array(1024));
      transfer.done({ bytes: 1024 });
    });
    const given = await call('GET', '/archive?path=sub%20dir');
    expect(given.headers.get('Content-Type')).toBe('application/x-tar');
    expect(given.headers.get('Content-Disposition')).toBe("attachment; filename*=UTF-8''sub%20dir.tar");
    expect(pathOf()).toBe('sub dir');
    takeAll();
    const taken = await call('PUT', '/archive', { raw: new Uint8Array(2048) });
    expect(taken).toMatchObject({ status: 200 });
    expect(begun.at(-1)).toMatchObject({ request: { operation: 'extract' }, receivedBytes: 2048 });
    play((transfer) =>
      transfer.failed('archive_refused', '".": entry "../x": an entry leads out of the folder'),
    );
    expect(problemIn(await call('PUT', '/archive', { raw: 'x' }))).toMatchObject({ status: 422 });
  });
});

describe('who may', () => {
  test.each([
    ['GET', 'sessions:write'],
    ['PUT', 'sessions:read'],
    ['DELETE', 'sessions:read'],
  ])('%s not with %s alone', async (method, scope) => {
    const narrow = await tokenOf({ claims: { scope } });
    const answer = await call(method, '/files/f', {
      token: narrow,
      ...(method === 'PUT' ? { raw: 'x' } : {}),
    });
    expect(problemIn(answer)).toMatchObject({ status: 403, code: 'insufficient_scope' });
  });

  test('neither another tenant nor another subject finds the session', async () => {
    give('secret');
    for (const claims of [{ tenant: 'other' }, { sub: 'bob' }]) {
      const foreign = await tokenOf({ claims });
      const answer = await call('GET', '/files/f', { token: foreign });
      expect(problemIn(answer)).toMatchObject({ status: 404, code: 'not_found' });
    }
    expect(begun).toEqual([]);
  });

  test('not beyond the number of transfers at a time, and again when one has ended', async () => {
    const endings: (() => void)[] = [];
    play((transfer) => {
      endings.push(() => transfer.failed('not_found', '"f": gone'));
    });
    const waiting = Array.from({ length: MAX_TRANSFERS }, () => call('GET', '/files/f'));
    await expect.poll(() => endings.length).toBe(MAX_TRANSFERS);
    const beyond = await call('GET', '/files/f');
    expect(problemIn(beyond)).toMatchObject({ status: 429, code: 'too_many_transfers', retryable: true });
    expect(beyond.headers.get('Retry-After')).toBe('1');
    for (const end of endings) end();
    for (const answer of await Promise.all(waiting)) expect(answer.status).toBe(404);
    give('x');
    expect((await call('GET', '/files/f')).status).toBe(200);
  });

  test('after the session was deleted nobody', async () => {
    await call('DELETE', '');
    expect(problemIn(await call('GET', '/files/f'))).toMatchObject({ status: 404 });
  });
});

describe('the link of the host', () => {
  test('that is lost fails the transfer, and the next one goes on the new link', async () => {
    play((transfer) => transfer.head({ answer: 'whole', facts: DOUBLE_FACTS, length: 5 }));
    const response = await request('GET', `${base}/files/f`, { token });
    const [session] = host.sessions.values();
    session?.drop();
    await expect(response.arrayBuffer()).rejects.toThrow();
    give('again');
    const next = call('GET', '/files/f');
    await session?.connect();
    expect(await next).toMatchObject({ status: 200, text: 'again' });
  });

  test.each([
    [
      'leaves a hole',
      (transfer: TransferDouble) => transfer.frame({ type: 'file_data', offset: 1 }, new Uint8Array(1)),
    ],
    [
      'sends more than the window',
      (transfer: TransferDouble) => {
        for (let offset = 0; offset <= 2 * TRANSFER_WINDOW_BYTES; offset += TRANSFER_CHUNK_BYTES) {
          transfer.frame({ type: 'file_data', offset }, new Uint8Array(TRANSFER_CHUNK_BYTES));
        }
      },
    ],
    [
      'takes what was never sent',
      (transfer: TransferDouble) => transfer.frame({ type: 'file_taken', bytes: 9 }),
    ],
  ])('whose host %s is closed', async (_, misbehave) => {
    play((transfer) => {
      transfer.head({ answer: 'whole', facts: DOUBLE_FACTS, length: 5_000_000 });
      misbehave(transfer);
    });
    // Nobody reads it meanwhile, so that the window stays as it is.
    const response = await request('GET', `${base}/files/f`, { token });
    const [session] = host.sessions.values();
    await expect.poll(() => session?.closes.length ?? 0).toBeGreaterThan(0);
    await response.body?.cancel().catch(() => undefined);
  });

  test('frames of a transfer that nobody knows are late, and nothing else', async () => {
    give('x');
    await call('GET', '/files/f');
    begun[0]?.frame({ type: 'file_data', offset: 77 }, new Uint8Array(1));
    begun[0]?.frame({ type: 'file_taken', bytes: 77 });
    expect((await call('GET', '/files/f')).status).toBe(200);
    const [session] = host.sessions.values();
    expect(session?.closes).toEqual([]);
  });
});
