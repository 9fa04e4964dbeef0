/** Files as streams: what is there is known before the bytes, and what is cut off changes nothing. */
import { afterAll, beforeAll, expect, it } from 'vitest';
import type { FileStatus } from '../../../../host-agent/guest-link/file-messages.ts';
import { FileServer } from '../../../../host-agent/guest-link/file-server.ts';
import {
  type FolderChange,
  readFile,
  replaceFile,
  watchFolder,
} from '../../../../host-agent/guest-link/file-transfer.ts';
import { PATIENCE_MS } from '../../../patience.ts';
import { bash, ENVIRONMENT, eventually, type GuestUnderTest, must } from '../guest-under-test.ts';

const MIB = 1024 * 1024;

export function describeFileTransfers(guest: () => GuestUnderTest): void {
  let files: FileServer;
  let cwd: string;

  const start = async () =>
    must(
      await FileServer.start(guest().link, {
        cwd,
        environment: ENVIRONMENT,
        readyTimeoutMs: PATIENCE_MS,
        program: `${guest().programs}/files`,
      }),
    );
  beforeAll(async () => {
    cwd = `${guest().work}/transfer-suite`;
    await bash(guest(), `mkdir -p ${cwd}`);
    files = await start();
  });
  afterAll(async () => {
    await files.dispose();
  });

  const replace = (
    path: string | Uint8Array,
    content: AsyncIterable<Uint8Array>,
    more: {
      mode?: number;
      guarded?: boolean;
      accept?: (before: FileStatus | null) => boolean;
      server?: FileServer;
    } = {},
  ) =>
    replaceFile(more.server ?? files, {
      path,
      cwd,
      content,
      mode: more.mode ?? null,
      guarded: more.guarded ?? false,
      accept: more.accept ?? (() => true),
    });
  const sh = async (command: string) => (await bash(guest(), `cd ${cwd} && ${command}`)).stdout;

  it('writes and reads more than any window, byte for byte', async () => {
    const block = Buffer.alloc(MIB, 'abcdefg');
    const written = must(await replace('big', repeat(block, 12), { mode: 0o600 }));
    expect(written).toMatchObject({
      bytes: 12 * MIB,
      created: true,
      status: { size: 12 * MIB, mode: 0o600 },
    });
    const parts: Uint8Array[] = [];
    const read = must(
      await readFile(files, {
        path: 'big',
        cwd,
        choose: ({ size }) => ({ offset: MIB + 1, length: size - MIB - 1 }),
        onBytes: async (bytes) => void parts.push(bytes),
      }),
    );
    expect(read.bytes).toBe(11 * MIB - 1);
    const whole = Buffer.concat(Array.from({ length: 12 }, () => block));
    expect(Buffer.concat(parts).equals(whole.subarray(MIB + 1))).toBe(true);
  });

  it('tells what is there first, and does nothing when it is not wanted', async () => {
    await sh('printf old > there && chmod 640 there');
    const seen: (FileStatus | null)[] = [];
    const no = (before: FileStatus | null) => {
      seen.push(before);
      return false;
    };
    expect(must(await replace('there', repeat(Buffer.from('new'), 1), { accept: no }))).toBeUndefined();
    expect(must(await replace('not-there', repeat(Buffer.from('new'), 1), { accept: no }))).toBeUndefined();
    expect(seen).toMatchObject([{ type: 'file', size: 3, mode: 0o640 }, null]);
    expect(await sh('cat there; ls -A')).not.toContain('not-there');
    const unread = must(
      await readFile(files, { path: 'there', cwd, choose: () => undefined, onBytes: async () => {} }),
    );
    expect(unread.bytes).toBe(0);
    expect(await sh('cat there')).toBe('old');
  });

  it('leaves the old content and no other file when the content fails', async () => {
    await sh('mkdir -p cut && printf old > cut/file');
    const failed = await replace('cut/file', failing(Buffer.alloc(300_000, 'n')));
    expect(failed).toMatchObject({ ok: false, failure: { errno: 'ECANCELED' } });
    expect(await sh('cat cut/file; ls -A cut')).toBe('oldfile\n');
    expect(await replace('cut/new', failing(Buffer.alloc(10, 'n')))).toMatchObject({ ok: false });
    expect(await sh('ls -A cut')).toBe('file\n');
  });

  it('changes the version with each content, and not without one', async () => {
    const first = must(await replace('version', repeat(Buffer.from('1'), 1)))?.status.version;
    const second = must(await replace('version', repeat(Buffer.from('2'), 1)))?.status.version;
    expect(second).not.toBe(first);
    const { version } = must(await files.stat({ path: 'version', cwd }));
    expect(version).toBe(second);
    await sh('printf 3 > version');
    expect(must(await files.stat({ path: 'version', cwd })).version).not.toBe(second);
  });

  it('guarded, replaces only what it was told of', async () => {
    await sh('printf old > guarded; rm -f fresh');
    const change = (command: string) =>
      (async function* (): AsyncGenerator<Uint8Array> {
        yield Buffer.from('mine');
        await sh(command);
      })();
    const over = await replace('guarded', change('printf theirs > guarded'), { guarded: true });
    expect(over).toMatchObject({ ok: false, failure: { errno: 'changed' } });
    const made = await replace('fresh', change('printf theirs > fresh'), { guarded: true });
    expect(made).toMatchObject({ ok: false, failure: { errno: 'changed' } });
    const gone = await replace('guarded', change('rm guarded'), { guarded: true });
    expect(gone).toMatchObject({ ok: false, failure: { errno: 'changed' } });
    expect(await sh('cat fresh; ls -A | grep sandgate')).toBe('theirs');
    expect(must(await replace('guarded', repeat(Buffer.from('4'), 1), { guarded: true }))?.created).toBe(
      true,
    );
    expect(await sh('cat guarded')).toBe('4');
  });

  it('never writes into a file that has another name', async () => {
    await sh('rm -f one two; printf old > one && ln one two');
    must(await replace('one', repeat(Buffer.from('new'), 1)));
    expect(await sh('cat one two')).toBe('newold');
  });

  it.each([
    ['a FIFO', 'mkfifo odd', 'not_regular'],
    ['a folder', 'mkdir odd', 'EISDIR'],
    ['a loop of links', 'ln -s odd odd', 'ELOOP'],
  ])('refuses %s at once, for reading and for writing', async (_, make, errno) => {
    await sh(`rm -rf odd; ${make}`);
    const read = await readFile(files, {
      path: 'odd',
      cwd,
      choose: () => ({ offset: 0, length: 1 }),
      onBytes: async () => {},
    });
    expect(read).toMatchObject({ ok: false, failure: { errno } });
    expect(await replace('odd', repeat(Buffer.from('x'), 1))).toMatchObject({
      ok: false,
      failure: { errno },
    });
  });

  it('ends a read that nobody takes, and the next server reads on', async () => {
    const server = await start();
    await sh('head -c 5000000 /dev/zero > zeros');
    const read = await readFile(server, {
      path: 'zeros',
      cwd,
      choose: ({ size }) => ({ offset: 0, length: size }),
      onBytes: async () => {
        throw new Error('gone');
      },
    });
    expect(read).toMatchObject({ ok: false, failure: { errno: 'ECANCELED' } });
    expect(server.isBroken).toBe(true);
    expect(must(await files.stat({ path: 'zeros', cwd })).size).toBe(5_000_000);
  });

  it('two servers write one file at once, and it has the whole of one of them', async () => {
    const other = await start();
    const [a, b] = [Buffer.alloc(MIB, 'a'), Buffer.alloc(MIB, 'b')];
    const both = await Promise.all([
      replace('contested', repeat(a, 3)),
      replace('contested', repeat(b, 3), { server: other }),
    ]);
    expect(both.map(({ ok }) => ok)).toEqual([true, true]);
    const counts = await sh(
      "tr -d a < contested | wc -c; tr -d b < contested | wc -c; ls -A | grep -c '[.]sandgate'",
    );
    expect([`0\n${3 * MIB}\n0\n`, `${3 * MIB}\n0\n0\n`]).toContain(counts.replaceAll(' ', ''));
    await other.dispose();
  });

  it('tells what changes in a folder until it is told to stop', async () => {
    const server = await start();
    await sh('rm -rf watched && mkdir watched');
    const stop = new AbortController();
    const changes: FolderChange[] = [];
    let begun = false;
    const watching = watchFolder(server, {
      path: 'watched',
      cwd,
      signal: stop.signal,
      onBegin: () => {
        begun = true;
      },
      onChanges: async (more) => void changes.push(...more),
    });
    await eventually('the watch begins', () => begun);
    await sh("printf x > 'watched/a b' && mkdir watched/folder && rm 'watched/a b'");
    const names = () => changes.map(({ name }) => Buffer.from(name).toString());
    await eventually('the changes arrive', () => changes.some(({ mask }) => (mask & 0x200) !== 0));
    expect(new Set(names())).toEqual(new Set(['a b', 'folder']));
    stop.abort();
    expect(await watching).toEqual({ ok: true, value: undefined });
    expect(must(await server.stat({ path: 'watched', cwd })).type).toBe('directory');
    await server.dispose();
  });

  it('watches no file and nothing that is not there', async () => {
    await sh('printf x > plain');
    for (const [path, errno] of [
      ['plain', 'ENOTDIR'],
      ['absent', 'ENOENT'],
    ] as const) {
      const watched = await watchFolder(files, {
        path,
        cwd,
        signal: new AbortController().signal,
        onBegin: () => {},
        onChanges: async () => {},
      });
      expect(watched).toMatchObject({ ok: false, failure: { errno } });
    }
  });
}

async function* repeat(bytes: Uint8Array, times: number): AsyncGenerator<Uint8Array> {
  for (let i = 0; i < times; i += 1) yield bytes;
}

async function* failing(bytes: Uint8Array): AsyncGenerator<Uint8Array> {
  yield bytes;
  throw new Error('the client went away');
}
