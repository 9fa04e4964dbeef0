/** Archives: what is in a folder comes out and goes in as it is, and a hostile one changes nothing outside of its folder. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { FileServer } from '../../../../host-agent/guest-link/file-server.ts';
import { archiveFolder, extractArchive } from '../../../../host-agent/guest-link/file-transfer.ts';
import { paxEntry, readTar, type TarEntry, tar, tarEntry } from '../../../fixtures/tar.ts';
import { bash, type GuestUnderTest, must, startFileServer } from '../guest-under-test.ts';

export function describeArchives(guest: () => GuestUnderTest): void {
  let files: FileServer;
  let cwd: string;

  beforeAll(async () => {
    ({ files, cwd } = await startFileServer(guest(), 'archive-suite'));
  });
  afterAll(async () => {
    await files.dispose();
  });

  const sh = async (command: string) => (await bash(guest(), `cd ${cwd} && ${command}`)).stdout;
  const archive = async (path: string) => {
    const parts: Uint8Array[] = [];
    must(
      await archiveFolder(files, {
        path,
        cwd,
        onBegin: () => {},
        onBytes: async (bytes) => void parts.push(bytes),
      }),
    );
    return Buffer.concat(parts);
  };
  const extract = (path: string, bytes: Buffer, step = 100_000) =>
    extractArchive(files, { path, cwd, content: inSteps(bytes, step), onBegin: () => {} });

  it('has files, folders, links, modes, times and any name, and goes in again as it came out', async () => {
    await sh(`rm -rf from to && mkdir -p from/deep/empty && cd from &&
      printf one > deep/one && chmod 751 deep/one && touch -d '2001-02-03T04:05:06.7Z' deep/one &&
      ln -s ../deep/one link && ln -s /etc/hostname out && ln -s nowhere dangling &&
      ln deep/one hard && mkfifo pipe && head -c 300000 /dev/urandom > random && : > nothing &&
      long=$(printf 'n%.0s' $(seq 200)) && mkdir $long && printf long > $long/$long &&
      printf raw > "$(printf 'raw\\377')" && printf nl > "$(printf 'a\\nb')" && chmod 500 deep/empty`);
    const bytes = await archive('from');
    const entries = new Map(readTar(bytes).map((entry) => [entry.name, entry]));
    expect(entries.get('link')).toMatchObject({ type: '2', link: '../deep/one' });
    expect(entries.get('out')).toMatchObject({ type: '2', link: '/etc/hostname' });
    expect(entries.get('deep/empty/')).toMatchObject({ type: '5', mode: 0o500 });
    expect(entries.get('raw\u00ff')?.content.toString()).toBe('raw');
    expect(new Set([entries.get('hard')?.type, entries.get('deep/one')?.type])).toEqual(new Set(['0', '1']));
    expect(entries.get('deep/one')?.mtime ?? 0).toBeCloseTo(981_173_106.7, 3);
    expect(must(await extract('to', bytes)).entries).toBe(entries.size);
    const listing = `find . -printf '%P|%y|%m|%s|%l|%T@\\n' | grep -v '^|' | sort`;
    expect(await sh(`cd to && ${listing}`)).toBe(await sh(`cd from && ${listing}`));
    expect(await sh('diff -r --no-dereference --exclude=pipe from to && stat -c %h to/hard')).toBe('2\n');
  });

  it('of an empty folder is empty, and goes in', async () => {
    await sh('rm -rf none copy && mkdir none');
    const bytes = await archive('none');
    expect(readTar(bytes)).toEqual([]);
    expect(must(await extract('copy', bytes)).entries).toBe(0);
  });

  it.each([1, 511, 513, 4096])('goes in when it comes in steps of %i bytes', async (step) => {
    await sh('rm -rf steps');
    const bytes = tar([
      { name: 'a/b', content: 'x'.repeat(1000) },
      { name: 'c', content: 'y' },
    ]);
    expect(must(await extract('steps', bytes, step)).entries).toBe(2);
    expect(await sh('wc -c < steps/a/b; cat steps/c')).toMatch(/^\s*1000\ny$/);
  });

  it('takes long names of both kinds, and old headers', async () => {
    await sh('rm -rf names');
    const long = `${'d'.repeat(120)}/${'f'.repeat(120)}`;
    const gnu = Buffer.concat([
      tarEntry({ name: '././@LongLink', type: 'L', content: `${long}\0` }),
      tarEntry({ name: 'cut', content: 'gnu' }),
      paxEntry({ path: `p/${long}`, mtime: '1.5' }),
      tarEntry({ name: 'cut', content: 'pax' }),
      Buffer.alloc(1024),
    ]);
    expect(must(await extract('names', gnu)).entries).toBe(2);
    expect(await sh(`cat names/${long} names/p/${long}`)).toBe('gnupax');
  });

  it('replaces what is in the way, link and all', async () => {
    await sh(
      'rm -rf over && mkdir -p over/d && printf victim > victim && ln -s ../victim over/f && printf old > over/g',
    );
    must(
      await extract(
        'over',
        tar([
          { name: 'f', content: 'new' },
          { name: 'g', content: 'new' },
        ]),
      ),
    );
    expect(await sh('cat victim over/f over/g; stat -c %F over/f')).toBe('victimnewnewregular file\n');
  });

  it('leaves no setuid and no other special bit', async () => {
    await sh('rm -rf special');
    must(await extract('special', tar([{ name: 'f', mode: 0o6755, content: 'x' }])));
    expect(await sh('stat -c %a special/f')).toBe('755\n');
  });

  describe('that is hostile', () => {
    const cases: [what: string, entries: TarEntry[], errno: string][] = [
      ['climbs', [{ name: '../planted', content: 'x' }], 'outside'],
      ['climbs in the middle', [{ name: 'a/../../planted', content: 'x' }], 'outside'],
      ['is absolute', [{ name: '/tmp/planted', content: 'x' }], 'outside'],
      [
        'writes through a link of its own',
        [
          { name: 'l', type: '2', link: '..' },
          { name: 'l/planted', content: 'x' },
        ],
        'outside',
      ],
      [
        'makes folders through a link of its own',
        [
          { name: 'l', type: '2', link: '..' },
          { name: 'l/planted/', type: '5' },
        ],
        'outside',
      ],
      ['links to what climbs', [{ name: 'l', type: '1', link: '../victim' }], 'outside'],
      ['links to what is absolute', [{ name: 'l', type: '1', link: '/etc/hostname' }], 'outside'],
      ['has a device', [{ name: 'null', type: '3' }], 'not_regular'],
      ['has a file in place of the folder', [{ name: '.', content: 'x' }], 'EISDIR'],
      ['ends too early', [{ name: 'short', content: 'x', size: 100_000 }], 'no_archive'],
    ];
    it.each(cases)('%s: is refused, and nothing is outside', async (_what, entries, errno) => {
      await sh('rm -rf hostile planted /tmp/planted && mkdir hostile && printf victim > victim');
      const refused = await extract('hostile', tar(entries));
      expect(refused).toMatchObject({ ok: false, failure: { errno } });
      expect(await sh('ls -d planted /tmp/planted 2>/dev/null; cat victim; stat -c %h victim')).toBe(
        'victim1\n',
      );
    });

    it.each([
      ['nothing', Buffer.alloc(0)],
      ['noise', Buffer.from('noise'.repeat(1000))],
      ['half a header', tarEntry({ name: 'x' }).subarray(0, 200)],
      ['a wrong checksum', Buffer.concat([tarEntry({ name: 'x' }).fill(7, 0, 3), Buffer.alloc(1024)])],
      [
        'a pax header without a value',
        Buffer.concat([tarEntry({ name: 'p', type: 'x', content: '9 path=' })]),
      ],
      [
        'a pax header that is longer than itself',
        tarEntry({ name: 'p', type: 'x', content: '99999999999999999999 path=x\n' }),
      ],
      ['no end', tarEntry({ name: 'f', content: 'x' })],
    ])('%s is no archive', async (_what, bytes) => {
      expect(await extract('nothing', bytes)).toMatchObject({ ok: false, failure: { errno: 'no_archive' } });
      expect(must(await files.stat({ path: '.', cwd })).type).toBe('directory');
    });

    it('says which entry it was, and keeps what came before it', async () => {
      await sh('rm -rf told');
      const refused = await extract('told', tar([{ name: 'good', content: 'x' }, { name: '../bad' }]));
      expect(refused).toMatchObject({ ok: false, failure: { message: expect.stringContaining('"../bad"') } });
      expect(await sh('ls told')).toBe('good\n');
    });
  });

  it('of what is no folder is refused', async () => {
    await sh('printf x > plain');
    const request = { cwd, onBegin: () => {}, onBytes: async () => {} };
    expect(await archiveFolder(files, { path: 'plain', ...request })).toMatchObject({
      failure: { errno: 'ENOTDIR' },
    });
    expect(await extract('plain', tar([]))).toMatchObject({ ok: false });
  });
}

async function* inSteps(bytes: Buffer, step: number): AsyncGenerator<Uint8Array> {
  for (let at = 0; at < bytes.length; at += step) yield bytes.subarray(at, at + step);
}
