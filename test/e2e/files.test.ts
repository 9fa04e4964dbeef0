/** Files keep their names and bytes, and stay inside the sandbox. */
import { randomBytes } from 'node:crypto';
import { existsSync } from 'node:fs';
import { rm, writeFile } from 'node:fs/promises';
import { hostname } from 'node:os';
import { describe, expect, test } from 'vitest';
import * as z from 'zod';
import type { Execution } from '../../shared/execution.ts';
import { useSession, useStack } from './stack.ts';

const ReadSchema = z.object({ content: z.string(), encoding: z.enum(['utf-8', 'base64']) });
const ListSchema = z.object({ entries: z.array(z.object({ name: z.string(), type: z.string() })) });
const stack = useStack();

function readOf(result: Execution): z.infer<typeof ReadSchema> {
  expect(result).toMatchObject({ status: 'succeeded', error: null });
  return ReadSchema.parse(result.structured);
}

describe('R16 exotic names', () => {
  const session = useSession(stack);
  const given = ['日本 語 😀.txt', 'a#b?c%41.txt', 'q\'"`$(id).txt', '-rf', 'tab\there'];

  test('R16 are written, read, listed and counted as themselves', async () => {
    for (const name of given) {
      const written = await session().file({ operation: 'write', path: `/tmp/n/${name}`, content: name });
      expect(written).toMatchObject({ status: 'succeeded' });
    }
    for (const name of given) {
      expect(readOf(await session().file({ operation: 'read', path: `/tmp/n/${name}` })).content).toBe(name);
    }
    const listed = await session().file({ operation: 'list', path: '/tmp/n' });
    const { entries } = ListSchema.parse(listed.structured);
    expect(entries.map(({ name }) => name).sort()).toEqual([...given].sort());
    expect((await session().sh('ls -1 /tmp/n | wc -l')).stdout).toBe('5\n');
  });

  test.each([
    ['a new line', 'two\nlines'],
    ['a backslash', 'back\\slash'],
    ['a trailing space and dot', 'end . '],
    ['a star', '*?[a]'],
    ['a combining accent', 'e\u0301'],
    ['the same accent composed', '\u00e9'],
    ['right-to-left text', 'עברית'],
    ['255 bytes', 'x'.repeat(255)],
    ['a leading tilde', '~root'],
    ['a variable', '$HOME'],
    ['two dots inside', 'a..b'],
    ['an emoji of several parts', '👩🏽‍🚀'],
  ])('R16 with %s are moved, found and deleted', async (_name, name) => {
    const folder = `/tmp/m-${randomBytes(4).toString('hex')}`;
    await session().file({ operation: 'write', path: `${folder}/first`, content: name });
    const moved = await session().file({
      operation: 'move',
      path: `${folder}/first`,
      destination: `${folder}/${name}`,
    });
    expect(moved).toMatchObject({ status: 'succeeded' });
    expect(readOf(await session().file({ operation: 'read', path: `${folder}/${name}` })).content).toBe(name);
    const { structured } = await session().file({ operation: 'list', path: folder });
    expect(ListSchema.parse(structured).entries).toMatchObject([{ name, type: 'file' }]);
    expect((await session().file({ operation: 'stat', path: `${folder}/${name}` })).status).toBe('succeeded');
    await session().file({ operation: 'delete', path: `${folder}/${name}` });
    expect((await session().sh(`ls -A ${folder} | wc -l`)).stdout).toBe('0\n');
  });

  test('R16 that are not UTF-8 do not spoil a list', async () => {
    await session().sh(`mkdir -p /tmp/raw; cd /tmp/raw; touch good $'bad\\xff'; cd`);
    const { structured, status } = await session().file({ operation: 'list', path: '/tmp/raw' });
    expect(status).toBe('succeeded');
    expect(ListSchema.parse(structured).entries).toHaveLength(2);
  });

  test('R16 of what is not there fail by name, and nothing is made', async () => {
    const missing = await session().file({ operation: 'read', path: '/tmp/none/here' });
    expect(missing).toMatchObject({ status: 'failed', structured: null });
    expect(missing.error?.message).not.toBe('');
    expect((await session().file({ operation: 'delete', path: '/tmp/none' })).status).toBe('failed');
    expect((await session().sh('test -e /tmp/none; echo $?')).stdout).toBe('1\n');
  });
});

describe('R51 paths that lead out', () => {
  const session = useSession(stack);

  test('R51 stay inside the sandbox', async () => {
    const secret = randomBytes(16).toString('hex');
    const sentinel = `/etc/sandgate-sentinel-${secret.slice(0, 8)}`;
    const planted = ['planted', 'p2'].map((name) => `/etc/${name}-${secret.slice(0, 8)}`);
    const [first, second] = planted.map((path) => path.slice('/etc/'.length));
    await writeFile(sentinel, secret);
    try {
      const { workdir } = await session().describe();
      const prepared = await session().sh(
        `cd ${workdir}; ln -s /etc out; ln -s /etc/${first} dangling; mkdir d; ln -s / d/root`,
      );
      expect(prepared.exit_code).toBe(0);
      const name = sentinel.slice('/etc/'.length);
      for (const path of [
        `out/${name}`,
        `../../../etc/${name}`,
        `d/root/etc/${name}`,
        `/proc/self/root/etc/${name}`,
        `/proc/1/root/etc/${name}`,
        `/proc/self/cwd/../etc/${name}`,
        `/proc/self/fd/../root/etc/${name}`,
      ]) {
        const result = await session().file({ operation: 'read', path });
        expect(result.status, path).toBe('failed');
        expect(JSON.stringify(result)).not.toContain(secret);
      }
      await session().file({ operation: 'write', path: 'dangling', content: 'x' });
      await session().file({ operation: 'write', path: `d/root/tmp/../etc/${second}`, content: 'x' });
      await session().file({ operation: 'write', path: `/proc/self/root/etc/${second}`, content: 'x' });
      await session().file({ operation: 'delete', path: `out/${name}` });
      await session().file({ operation: 'move', path: `out/${name}`, destination: 'moved' });
      expect(existsSync(sentinel)).toBe(true);
      expect(planted.filter((path) => existsSync(path))).toEqual([]);
    } finally {
      for (const path of [sentinel, ...planted]) await rm(path, { force: true });
    }
  });

  test('R51 show the names and files of the image, not of the host', async () => {
    expect((await session().sh('cat /proc/sys/kernel/hostname')).stdout.trim()).not.toBe(hostname());
    expect(readOf(await session().file({ operation: 'read', path: '/etc/passwd' })).content).toContain(
      'root:',
    );
    const state = await session().sh(`ls ${stack().stack.stateDir}; echo $?`);
    expect(state.stdout).toBe('2\n');
  });

  test('R51 do not let the read-only parts be written', async () => {
    for (const path of ['/etc/new', '/usr/bin/new', '/sandgate/new', '/new']) {
      expect((await session().file({ operation: 'write', path, content: 'x' })).status, path).toBe('failed');
    }
  });

  test('R51 by a link are listed as links', async () => {
    await session().sh(
      'mkdir -p /tmp/links; ln -sfn /etc /tmp/links/out; ln -sfn nowhere /tmp/links/dangling',
    );
    const { structured } = await session().file({ operation: 'list', path: '/tmp/links' });
    expect(ListSchema.parse(structured).entries.map(({ type }) => type)).toEqual(['symlink', 'symlink']);
    await session().file({ operation: 'delete', path: '/tmp/links', recursive: true });
    expect((await session().sh('test -f /etc/passwd; echo $?; ls -d /tmp/links')).stdout).toBe('0\n');
  });

  test.each(['/dev/zero', '/proc/kmsg', '/tmp/pipe'])('R51 to %s do not hang a read', async (path) => {
    await session().sh('test -p /tmp/pipe || mkfifo /tmp/pipe');
    const result = await session().file({ operation: 'read', path }, { timeoutMs: 5_000 });
    expect(result.status).toBe('failed');
  });
});

describe('R57 text', () => {
  const session = useSession(stack);

  test.each([1023, 4095, 8191, 16383, 65535, 1022, 1024, 2047, 32767, 131071, 262143, 524287])(
    'R57 with a character across byte %i is UTF-8 and comes back whole',
    async (count) => {
      const content = `${'a'.repeat(count)}é漢😀`;
      await session().file({ operation: 'write', path: '/tmp/u', content });
      const read = readOf(await session().file({ operation: 'read', path: '/tmp/u' }));
      expect(read.encoding).toBe('utf-8');
      expect(read.content === content).toBe(true);
    },
  );

  test.each([
    ['a byte order mark and CRLF', '\ufeffx\r\ny'],
    ['nothing', ''],
    ['NUL', 'a\0b'],
    ['no final newline', 'x'],
    ['lone carriage returns', 'a\rb\r'],
    ['the last code point', '\u{10ffff}'],
  ])('R57 with %s is kept byte for byte', async (_name, content) => {
    await session().file({ operation: 'write', path: '/tmp/v', content });
    expect(readOf(await session().file({ operation: 'read', path: '/tmp/v' }))).toMatchObject({
      content,
      encoding: 'utf-8',
    });
    const hex = (await session().sh("od -An -v -tx1 /tmp/v | tr -d ' \\n'")).stdout;
    expect(hex).toBe(Buffer.from(content).toString('hex'));
  });

  test.each([
    ['latin-1', 'caf\\xe9'],
    ['UTF-16', '\\xff\\xfea\\x00'],
    ['a cut character', 'a\\xe6\\xbc'],
    ['a surrogate', '\\xed\\xa0\\x80'],
  ])('R57 in %s is base64', async (_name, escaped) => {
    await session().sh(`printf '${escaped}' > /tmp/w`);
    const read = readOf(await session().file({ operation: 'read', path: '/tmp/w' }));
    expect(read.encoding).toBe('base64');
    const hex = (await session().sh("od -An -v -tx1 /tmp/w | tr -d ' \\n'")).stdout;
    expect(Buffer.from(read.content, 'base64').toString('hex')).toBe(hex);
  });

  test('R57 as bytes of every value goes in and out as base64, in parts', async () => {
    const bytes = randomBytes(300_000);
    const written = await session().file({
      operation: 'write',
      path: '/tmp/b',
      content: bytes.toString('base64'),
      encoding: 'base64',
      mode: 0o640,
    });
    expect(written.status).toBe('succeeded');
    expect((await session().sh('sha256sum < /tmp/b; stat -c %a /tmp/b')).stdout).toBe(
      `${(await sha256(bytes)).padEnd(64)}  -\n640\n`,
    );
    const read = async (more: Record<string, number>) =>
      readOf(await session().file({ operation: 'read', path: '/tmp/b', encoding: 'base64', ...more }));
    expect(Buffer.from((await read({})).content, 'base64').equals(bytes)).toBe(true);
    const part = await read({ offset: 123_456, length: 1000 });
    expect(Buffer.from(part.content, 'base64').equals(bytes.subarray(123_456, 124_456))).toBe(true);
  });
});

async function sha256(bytes: Uint8Array<ArrayBuffer>): Promise<string> {
  return Buffer.from(await crypto.subtle.digest('SHA-256', bytes)).toString('hex');
}
