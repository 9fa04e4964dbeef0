/** Files as streams, on real sandboxes and on fakes: the same answers, whoever gives them. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Sandbox } from '../../host-agent/sandbox/port.ts';
import type { FileFacts } from '../../shared/transfer.ts';
import { type GetSubject, shell, startSandbox } from './subject.ts';

const bytesOf = (text: string): Uint8Array => Buffer.from(text);

export function describeTransfers(subject: GetSubject): void {
  describe('transfers', () => {
    let sandbox: Sandbox;
    const { signal } = new AbortController();
    beforeAll(async () => {
      sandbox = await startSandbox(subject());
    });
    afterAll(() => sandbox.destroy());

    const write = (
      path: string,
      content: string | AsyncIterable<Uint8Array>,
      more: { isNew?: boolean } = {},
    ) =>
      sandbox.files.write({
        path: bytesOf(path),
        signal,
        mode: 0o640,
        guarded: more.isNew ?? false,
        accept: (before) => more.isNew !== true || before === null,
        content: typeof content === 'string' ? once(bytesOf(content)) : content,
      });
    const read = async (path: string, piece?: { offset: number; length: number }) => {
      const parts: Uint8Array[] = [];
      let facts: FileFacts | undefined;
      const done = await sandbox.files.read({
        path: bytesOf(path),
        signal,
        choose: (given) => {
          facts = given;
          return piece ?? { offset: 0, length: given.size };
        },
        onBytes: async (bytes) => void parts.push(bytes),
      });
      return { done, facts, text: Buffer.concat(parts).toString() };
    };

    it('gives back the bytes that were written, and what they are', async () => {
      expect(await write('t/one', 'hello')).toMatchObject({
        ok: true,
        value: { bytes: 5, created: true, facts: { type: 'file', size: 5, mode: 0o640 } },
      });
      expect(await write('t/one', 'hello you')).toMatchObject({ ok: true, value: { created: false } });
      const whole = await read('t/one');
      expect(whole).toMatchObject({ done: { ok: true, value: { bytes: 9 } }, text: 'hello you' });
      expect(whole.facts).toMatchObject({ size: 9, etag: expect.stringMatching(/^"[\x21\x23-\x7e]+"$/) });
      expect((await read('/workspace/t/one', { offset: 6, length: 3 })).text).toBe('you');
    });

    it('carries more than any window, both ways', async () => {
      const block = Buffer.alloc(256 * 1024, '0123456789abcdef');
      expect(await write('t/big', times(block, 24))).toMatchObject({ ok: true, value: { bytes: 6_291_456 } });
      const { text } = await read('t/big');
      expect(text.length).toBe(6_291_456);
      expect(text.endsWith('0123456789abcdef')).toBe(true);
    });

    it('sees and is seen by the programs of the session', async () => {
      await shell(sandbox, 'printf from-shell > /workspace/shared');
      expect((await read('shared')).text).toBe('from-shell');
      await write('/tmp/shared', 'from transfer');
      expect((await shell(sandbox, 'cat /tmp/shared')).stdout).toBe('from transfer');
    });

    it('moves bytes while a call runs', async () => {
      const running = shell(sandbox, 'cat > /tmp/taken; cat /tmp/taken', { stdin: 'end' });
      expect(await write('t/meanwhile', 'x')).toMatchObject({ ok: true });
      expect((await running).stdout).toBe('end');
    });

    it('leaves what was there when the content does not come to its end', async () => {
      await write('t/keep', 'old');
      expect(await write('t/keep', cut(bytesOf('new')))).toMatchObject({
        ok: false,
        code: 'transfer_failed',
      });
      expect((await read('t/keep')).text).toBe('old');
    });

    it('lets one of two writers of a new file make it', async () => {
      const both = await Promise.all(['a', 'b'].map((text) => write('t/contested', text, { isNew: true })));
      const makers = both.filter((end) => end.ok && end.value !== null);
      expect(makers).toMatchObject([{ value: { created: true } }]);
      expect(['a', 'b']).toContain((await read('t/contested')).text);
    });

    it('lists a folder page by page', async () => {
      for (const name of ['a', 'b', 'c']) await write(`t/list/${name}`, name);
      const names: string[] = [];
      for (let cursor: number | null = 0; cursor !== null; ) {
        const page = await sandbox.files.list({ path: bytesOf('t/list'), signal, cursor, limit: 2 });
        if (!page.ok) throw new Error(page.detail);
        expect(page.value.entries.length).toBeLessThanOrEqual(2);
        names.push(...page.value.entries.map(({ name }) => Buffer.from(name).toString()));
        cursor = page.value.nextCursor;
      }
      expect(names.sort()).toEqual(['a', 'b', 'c']);
    });

    it('says of what is not there that it is not, and names it', async () => {
      expect((await read('t/absent')).done).toMatchObject({
        code: 'not_found',
        detail: expect.stringContaining('t/absent'),
      });
      const request = { path: bytesOf('t/absent'), signal };
      expect(await sandbox.files.list({ ...request, cursor: 0, limit: 9 })).toMatchObject({
        code: 'not_found',
      });
      expect(await sandbox.files.delete({ ...request, recursive: false })).toMatchObject({
        code: 'not_found',
      });
      expect(await write('t', 'x')).toMatchObject({ code: 'is_directory' });
    });

    it('deletes', async () => {
      await write('t/gone', 'x');
      const deleted = await sandbox.files.delete({ path: bytesOf('t/gone'), signal, recursive: false });
      expect(deleted).toEqual({ ok: true, value: { deleted: 1 } });
      expect((await read('t/gone')).done).toMatchObject({ code: 'not_found' });
    });

    it('does nothing for nobody', async () => {
      const { done } = await (async () => {
        const aborted = AbortSignal.abort();
        const end = await sandbox.files.read({
          path: bytesOf('t/one'),
          signal: aborted,
          choose: ({ size }) => ({ offset: 0, length: size }),
          onBytes: async () => {},
        });
        return { done: end };
      })();
      expect(done).toMatchObject({ ok: false, code: 'transfer_failed' });
    });
  });
}

/** What only a real sandbox has: a file system, archives and programs that misbehave. */
export function describeRealTransfers(subject: GetSubject): void {
  describe('transfers of a real sandbox', () => {
    let sandbox: Sandbox;
    const { signal } = new AbortController();
    beforeAll(async () => {
      sandbox = await startSandbox(subject());
    });
    afterAll(() => sandbox.destroy());
    const write = (path: string, content: AsyncIterable<Uint8Array>, until: AbortSignal = signal) =>
      sandbox.files.write({
        path: bytesOf(path),
        signal: until,
        mode: null,
        guarded: false,
        accept: () => true,
        content,
      });

    it('a full disk is said, and nothing of the file is left', async () => {
      const block = Buffer.alloc(1024 * 1024);
      expect(await write('full', times(block, 80))).toMatchObject({ ok: false, code: 'no_space' });
      expect((await shell(sandbox, 'ls -A /workspace')).stdout).toBe('');
      expect(await write('small', once(block))).toMatchObject({ ok: true });
    });

    it('R51 links lead only where the sandbox itself can go', async () => {
      await shell(
        sandbox,
        'cd /workspace; ln -s /etc out; ln -s /etc/planted dangling; mkdir d; ln -s / d/root',
      );
      const parts: Uint8Array[] = [];
      const host = await sandbox.files.read({
        path: bytesOf('/proc/self/root/etc/hostname'),
        signal,
        choose: ({ size }) => ({ offset: 0, length: Math.max(size, 64) }),
        onBytes: async (bytes) => void parts.push(bytes),
      });
      if (host.ok)
        expect(Buffer.concat(parts).toString().trim()).not.toBe((await import('node:os')).hostname());
      for (const path of ['dangling', 'out/planted', 'd/root/etc/planted', '../../../etc/planted']) {
        expect(await write(path, once(bytesOf('x')))).toMatchObject({ ok: false, code: 'permission_denied' });
      }
    });

    it('a server that was stopped from inside is not waited for', async () => {
      const abort = new AbortController();
      let isWaiting = false;
      const writing = write(
        'stuck',
        (async function* () {
          yield bytesOf('x');
          await shell(sandbox, 'pkill -STOP -f /sandgate/files || kill -STOP $(pidof files)');
          isWaiting = true;
          abort.abort();
          throw new Error('gone');
        })(),
        abort.signal,
      );
      expect(await writing).toMatchObject({ ok: false });
      expect(isWaiting).toBe(true);
      expect(await write('after', once(bytesOf('y')))).toMatchObject({ ok: true });
    });

    it('an archive of one sandbox goes into another', async () => {
      await shell(
        sandbox,
        'mkdir -p /workspace/p/q; cd /workspace/p; printf 1 > q/f; chmod 711 q/f; ln -s q/f l',
      );
      const other = await startSandbox(subject());
      try {
        const parts: Uint8Array[] = [];
        const made = await sandbox.files.archive({
          path: bytesOf('p'),
          signal,
          onBegin: () => {},
          onBytes: async (bytes) => void parts.push(bytes),
        });
        expect(made).toMatchObject({ ok: true, value: { entries: 3 } });
        const taken = await other.files.extract({
          path: bytesOf('.'),
          signal,
          onBegin: () => {},
          content: once(Buffer.concat(parts)),
        });
        expect(taken).toMatchObject({ ok: true, value: { entries: 3 } });
        expect((await shell(other, 'cat l; stat -c %a q/f; readlink l')).stdout).toBe('1711\nq/f\n');
      } finally {
        await other.destroy();
      }
    });

    it('a change is told while the sandbox works, and the end of the watch is quiet', async () => {
      const stop = new AbortController();
      const seen: string[] = [];
      const begun = Promise.withResolvers<void>();
      const changed = Promise.withResolvers<void>();
      const watching = sandbox.files.watch({
        path: bytesOf('/workspace'),
        signal: stop.signal,
        onBegin: begun.resolve,
        onChanges: async (changes) => {
          seen.push(...changes.map(({ change, name }) => `${change} ${name}`));
          if (seen.includes('deleted w')) changed.resolve();
        },
      });
      await begun.promise;
      await shell(sandbox, 'touch /workspace/w && rm /workspace/w');
      await changed.promise;
      expect(seen[0]).toBe('created w');
      stop.abort();
      expect(await watching).toEqual({ ok: true, value: null });
    });
  });
}

async function* once(bytes: Uint8Array): AsyncGenerator<Uint8Array> {
  yield bytes;
}

async function* times(bytes: Uint8Array, count: number): AsyncGenerator<Uint8Array> {
  for (let i = 0; i < count; i += 1) yield bytes;
}

async function* cut(bytes: Uint8Array): AsyncGenerator<Uint8Array> {
  yield bytes;
  throw new Error('the client went away');
}
