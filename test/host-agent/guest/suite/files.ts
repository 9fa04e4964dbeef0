/** The file server: bytes as they are, names as they are, links followed only inside. */
import { afterAll, beforeAll, expect, it } from 'vitest';
import { FileServer } from '../../../../host-agent/guest-link/file-server.ts';
import { PATIENCE_MS } from '../../../patience.ts';
import { bash, ENVIRONMENT, type GuestUnderTest, must, startFileServer } from '../guest-under-test.ts';

const MAX_BYTES = 64 * 1024 * 1024;

export function describeFiles(guest: () => GuestUnderTest): void {
  let files: FileServer;
  let cwd: string;

  beforeAll(async () => {
    ({ files, cwd } = await startFileServer(guest(), 'file-suite'));
  });
  afterAll(async () => {
    await files.dispose();
  });

  const write = (path: string | Uint8Array, content: string | Uint8Array, mode?: number) =>
    files.write({
      path,
      cwd,
      content: Buffer.from(content),
      maxBytes: MAX_BYTES,
      ...(mode === undefined ? {} : { mode }),
    });
  const read = async (path: string | Uint8Array, range: { offset?: number; length?: number } = {}) => {
    const parts: Uint8Array[] = [];
    const result = await files.read({ path, cwd, ...range, onBytes: (bytes) => void parts.push(bytes) });
    return result.ok ? { ...result.value, bytes: Buffer.concat(parts) } : result.failure;
  };
  const text = async (path: string | Uint8Array) => {
    const result = await read(path);
    return 'bytes' in result ? result.bytes.toString('utf8') : result.errno;
  };

  it('writes and reads bytes as they are, and makes the folders above', async () => {
    const every = Buffer.from(Array.from({ length: 256 }, (_, i) => i));
    expect(must(await write('new/deep/bytes', every))).toEqual({ bytesWritten: 256, created: true });
    expect(must(await write('new/deep/bytes', every))).toEqual({ bytesWritten: 256, created: false });
    expect(await read('new/deep/bytes')).toMatchObject({ bytes: every, bytesRead: 256, endOfFile: true });
    expect(await read(`${cwd}/new/deep/bytes`, { offset: 250, length: 3 })).toMatchObject({
      bytes: every.subarray(250, 253),
      endOfFile: false,
    });
    expect(await read('new/deep/bytes', { offset: 250, length: 6 })).toMatchObject({ endOfFile: true });
    expect(await read('new/deep/bytes', { offset: 1000 })).toMatchObject({ bytesRead: 0, endOfFile: true });
    expect(must(await write('empty', ''))).toMatchObject({ bytesWritten: 0 });
    expect(await text('empty')).toBe('');
  });

  it.each([1023, 4095, 8191, 16383, 65535])('keeps text of %i characters and a few more (R57)', async (n) => {
    const content = `${'a'.repeat(n)}é漢😀`;
    await write('u', content);
    expect(await text('u')).toBe(content);
    await write('u', '\ufeffx\r\ny');
    expect(await text('u')).toBe('\ufeffx\r\ny');
  });

  it.each(['日本 語 😀.txt', 'a#b?c%41.txt', 'q\'"`$(id).txt', '-rf', 'tab\there', 'new\nline', '*', '~'])(
    'takes the name %j as it is (R16)',
    async (name) => {
      must(await write(`names/${name}`, name));
      expect(await text(`names/${name}`)).toBe(name);
      const { entries } = must(await files.list({ path: 'names', cwd }));
      expect(entries.map((entry) => Buffer.from(entry.name).toString('utf8'))).toContain(name);
    },
  );

  it('takes names that are not UTF-8', async () => {
    const name = Buffer.from('raw\xff\xfe', 'latin1');
    must(await write(Buffer.concat([Buffer.from('raw/'), name]), 'x'));
    const { entries } = must(await files.list({ path: 'raw', cwd }));
    expect(entries.map((entry) => Buffer.from(entry.name))).toEqual([name]);
  });

  it('lists a large folder in parts, each entry once', async () => {
    await bash(
      guest(),
      `mkdir -p ${cwd}/many && cd ${cwd}/many && for ((i = 0; i < 2300; i++)); do : > f$i; done`,
    );
    const names = new Set<string>();
    let cursor: number | null = 0;
    let parts = 0;
    while (cursor !== null) {
      const part: { entries: { name: Uint8Array }[]; nextCursor: number | null } = must(
        await files.list({ path: 'many', cwd, cursor }),
      );
      for (const entry of part.entries) names.add(Buffer.from(entry.name).toString());
      cursor = part.nextCursor;
      parts += 1;
    }
    expect([names.size, parts]).toEqual([2300, 3]);
    expect(must(await files.list({ path: 'many', cwd, cursor: 9999 }))).toEqual({
      entries: [],
      nextCursor: null,
    });
  });

  it('tells the kinds of files apart', async () => {
    await bash(
      guest(),
      `mkdir ${cwd}/kinds && cd ${cwd}/kinds && mkfifo p && mkdir d && ln -s d l && ln -s nowhere x && : > f && chmod 640 f && touch -d @1700000000 f`,
    );
    const { entries } = must(await files.list({ path: 'kinds', cwd }));
    expect(entries.map(({ name, type }) => `${Buffer.from(name).toString()} ${type}`)).toEqual([
      'd directory',
      'f file',
      'l symlink',
      'p fifo',
      'x symlink',
    ]);
    expect(must(await files.stat({ path: 'kinds/f', cwd }))).toEqual({
      type: 'file',
      size: 0,
      mode: 0o640,
      mtimeMs: 1700000000000,
      version: expect.any(String),
      link: false,
    });
    expect(must(await files.stat({ path: 'kinds/l', cwd }))).toMatchObject({ type: 'directory', link: true });
    expect(must(await files.stat({ path: 'kinds/x', cwd }))).toMatchObject({ type: 'symlink', link: true });
  });

  it('refuses what is not a regular file, without waiting for it', async () => {
    await bash(guest(), `cd ${cwd} && mkfifo fifo`);
    expect(await text('fifo')).toBe('not_regular');
    expect(await text('/dev/null')).toBe('not_regular');
    expect(await text('/dev/zero')).toBe('not_regular');
    expect(await text(cwd)).toBe('EISDIR');
    expect(await write('fifo', 'x')).toMatchObject({ failure: { errno: 'not_regular' } });
    expect(await write(cwd, 'x')).toMatchObject({ failure: { errno: 'EISDIR' } });
    expect(await write('trailing/', 'x')).toMatchObject({ failure: { errno: 'EISDIR' } });
  });

  it.each([
    ['', 'EINVAL'],
    ['a\0b', 'EINVAL'],
    ['missing', 'ENOENT'],
    ['x'.repeat(300), 'ENAMETOOLONG'],
    ['x/'.repeat(3000), 'ENAMETOOLONG'],
    ['y'.repeat(300_000), 'ENAMETOOLONG'],
  ])('says why %.20j cannot be read', async (path, errno) => {
    expect(await text(path)).toBe(errno);
  });

  it('names the error of every other operation', async () => {
    expect(await files.stat({ path: 'missing', cwd })).toMatchObject({ failure: { errno: 'ENOENT' } });
    expect(await files.list({ path: 'u', cwd })).toMatchObject({ failure: { errno: 'ENOTDIR' } });
    expect(await files.delete({ path: 'missing', cwd })).toMatchObject({ failure: { errno: 'ENOENT' } });
    expect(await files.move({ path: 'missing', destination: 'm', cwd })).toMatchObject({
      failure: { errno: 'ENOENT' },
    });
    expect(await files.stat({ path: 'u', cwd: '/no/folder' })).toMatchObject({
      failure: { errno: 'ENOENT' },
    });
    expect(await files.list({ path: 'many', cwd, cursor: -1 })).toMatchObject({
      failure: { errno: 'EINVAL' },
    });
  });

  it('writes through a link, also to what does not exist yet (R51)', async () => {
    await bash(guest(), `cd ${cwd} && ln -s target/file dangling && ln -s dangling twice && ln -s loop loop`);
    must(await write('twice', 'through'));
    expect(await text('target/file')).toBe('through');
    expect(must(await files.stat({ path: 'dangling', cwd }))).toMatchObject({ type: 'file', link: true });
    expect(await write('loop', 'x')).toMatchObject({ failure: { errno: 'ELOOP' } });
  });

  it('keeps the mode of a file it replaces, and its other names', async () => {
    await bash(
      guest(),
      `cd ${cwd} && echo old > mode && chmod 711 mode && echo old > first && ln first second`,
    );
    must(await write('mode', 'new'));
    must(await write('first', 'new'));
    must(await write('given', 'new', 0o600));
    expect(must(await files.stat({ path: 'mode', cwd })).mode).toBe(0o711);
    expect(must(await files.stat({ path: 'given', cwd })).mode).toBe(0o600);
    expect(await text('second')).toBe('new');
  });

  it('leaves the old content when the new one does not come to its end', async () => {
    await write('whole', 'old');
    async function* failing() {
      yield Buffer.alloc(300_000);
      throw new Error('the sender broke off');
    }
    const request = { path: 'whole', cwd, maxBytes: MAX_BYTES };
    expect(await files.write({ ...request, content: failing() })).toMatchObject({
      failure: { message: 'the sender broke off' },
    });
    expect(await files.write({ ...request, content: Buffer.alloc(9), maxBytes: 8 })).toMatchObject({
      failure: { errno: 'too_large' },
    });
    expect(await text('whole')).toBe('old');
    const { entries } = must(await files.list({ path: '.', cwd }));
    expect(entries.filter((entry) => Buffer.from(entry.name).toString().startsWith('.sandgate'))).toEqual([]);
  });

  it('carries large content both ways, as fast as the reader takes it', async () => {
    const part = Buffer.alloc(1024 * 1024, 'm');
    async function* parts() {
      for (let i = 0; i < 8; i++) yield part;
    }
    expect(
      must(await files.write({ path: 'large', cwd, content: parts(), maxBytes: MAX_BYTES })).bytesWritten,
    ).toBe(8 * 1024 * 1024);
    let bytes = 0;
    const slow = await files.read({
      path: 'large',
      cwd,
      onBytes: async (chunk) => {
        bytes += chunk.byteLength;
        await guest().link.ping(PATIENCE_MS);
      },
    });
    expect(must(slow).bytesRead).toBe(8 * 1024 * 1024);
    expect(bytes).toBe(8 * 1024 * 1024);
  });

  it('reads of a sparse file only what was asked for', async () => {
    await bash(guest(), `truncate -s 1G ${cwd}/sparse`);
    expect(await read('sparse', { offset: 1_000_000_000, length: 5 })).toMatchObject({
      bytes: Buffer.alloc(5),
      stat: { size: 1073741824 },
      endOfFile: false,
    });
  });

  it('deletes a folder only when told to, and no link is followed', async () => {
    await bash(
      guest(),
      `cd ${cwd} && mkdir -p tree/a/b outside && : > outside/kept && : > tree/a/b/f && ln -s ../../outside tree/a/l && ln -s outside only-link`,
    );
    expect(await files.delete({ path: 'tree', cwd })).toMatchObject({ failure: { errno: 'ENOTEMPTY' } });
    expect(must(await files.delete({ path: 'tree', cwd, recursive: true })).deleted).toBe(5);
    must(await files.delete({ path: 'only-link', cwd, recursive: true }));
    expect(await text('outside/kept')).toBe('');
    expect(await files.delete({ path: '/', cwd, recursive: true })).toMatchObject({
      failure: { errno: 'EBUSY' },
    });
  });

  it('deletes a tree deeper than any path', async () => {
    await bash(
      guest(),
      `cd ${cwd} && for ((i = 0; i < 1500; i++)); do mkdir ${'n'.repeat(200)} && cd -P ${'n'.repeat(200)} 2> /dev/null || cd ${'n'.repeat(200)}; done`,
    );
    const { deleted } = must(await files.delete({ path: 'n'.repeat(200), cwd, recursive: true }));
    expect(deleted).toBeGreaterThan(10);
    expect(await files.stat({ path: 'n'.repeat(200), cwd })).toMatchObject({ failure: { errno: 'ENOENT' } });
  });

  it('moves files and folders', async () => {
    await write('from/a', 'moved');
    must(await files.move({ path: 'from', destination: 'to/there', cwd }));
    expect(await text('to/there/a')).toBe('moved');
    await write('over', 'old');
    must(await files.move({ path: 'to/there/a', destination: 'over', cwd }));
    expect(await text('over')).toBe('moved');
    await write('shm', 'other file system', 0o751);
    must(await files.move({ path: 'shm', destination: '/dev/shm/sandgate-moved', cwd }));
    expect(await text('/dev/shm/sandgate-moved')).toBe('other file system');
    expect(must(await files.stat({ path: '/dev/shm/sandgate-moved', cwd })).mode).toBe(0o751);
    expect(await text('shm')).toBe('ENOENT');
    must(await files.delete({ path: '/dev/shm/sandgate-moved', cwd }));
  });

  it('answers many requests at once, in turn', async () => {
    const all = await Promise.all(
      Array.from({ length: 50 }, (_, i) => write(`at-once/${i}`, `content ${i}`)),
    );
    expect(all.every((result) => result.ok)).toBe(true);
    expect(await Promise.all(Array.from({ length: 50 }, (_, i) => text(`at-once/${i}`)))).toEqual(
      Array.from({ length: 50 }, (_, i) => `content ${i}`),
    );
    const tooMany = await Promise.all(Array.from({ length: 70 }, () => files.stat({ path: 'u', cwd })));
    expect(tooMany.filter((result) => !result.ok && result.failure.reason === 'limit')).toHaveLength(6);
  });

  it('can be used again after its server was killed, by a new one', async () => {
    const first = must(
      await FileServer.start(guest().link, {
        cwd,
        environment: ENVIRONMENT,
        readyTimeoutMs: PATIENCE_MS,
        program: `${guest().programs}/files`,
      }),
    );
    await first.dispose();
    expect(await first.stat({ path: 'u', cwd })).toMatchObject({ ok: false });
    expect(must(await files.stat({ path: 'u', cwd })).type).toBe('file');
  });
}
