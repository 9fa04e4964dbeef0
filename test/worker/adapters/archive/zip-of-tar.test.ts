import { describe, expect, test } from 'vitest';
import { crc32 } from '../../../../worker/adapters/archive/crc32.ts';
import { zipOfTar } from '../../../../worker/adapters/archive/zip-of-tar.ts';
import { blockOf, END, paxBlock } from './tar-blocks.ts';

/** In pieces that end anywhere. */
function streamOf(bytes: Uint8Array, pieceBytes: number): ReadableStream<Uint8Array> {
  let at = 0;
  return new ReadableStream({
    pull(controller) {
      if (at >= bytes.length) return controller.close();
      controller.enqueue(bytes.slice(at, at + pieceBytes));
      at += pieceBytes;
    },
  });
}

/** The archive as bytes, one for each character. */
async function zipped(archive: string, pieceBytes = 700): Promise<Uint8Array> {
  const bytes = Uint8Array.from(archive, (character) => character.charCodeAt(0));
  return new Uint8Array(await new Response(zipOfTar(streamOf(bytes, pieceBytes))).arrayBuffer());
}

/** What a reader finds that begins, as readers do, at the end. */
function readZip(zip: Uint8Array): { name: string; content: string; mode: number }[] {
  const view = new DataView(zip.buffer);
  const end = zip.length - 22;
  expect(view.getUint32(end, true)).toBe(0x06054b50);
  const count = view.getUint16(end + 10, true);
  let at = view.getUint32(end + 16, true);
  expect(at + view.getUint32(end + 12, true)).toBe(end);
  return Array.from({ length: count }, () => {
    expect(view.getUint32(at, true)).toBe(0x02014b50);
    const size = view.getUint32(at + 24, true);
    const nameLength = view.getUint16(at + 28, true);
    const name = new TextDecoder().decode(zip.subarray(at + 46, at + 46 + nameLength));
    const local = view.getUint32(at + 42, true);
    expect(view.getUint32(local, true)).toBe(0x04034b50);
    const begin = local + 30 + view.getUint16(local + 26, true) + view.getUint16(local + 28, true);
    const data = zip.subarray(begin, begin + size);
    expect(crc32(data)).toBe(view.getUint32(at + 16, true));
    const mode = view.getUint32(at + 38, true) >>> 16;
    at += 46 + nameLength;
    return { name, content: new TextDecoder().decode(data), mode };
  });
}

describe('a tar archive as a zip archive', () => {
  test('has the files and folders of it, and no links', async () => {
    const long = `${'deep/'.repeat(40)}名\n前.txt`;
    const archive = [
      blockOf('./', '', '5'),
      blockOf('./a.txt', 'one'),
      blockOf('b', '', '5'),
      blockOf('link', '', '2'),
      paxBlock('path', long),
      blockOf('cut', 'x'.repeat(5_000)),
      blockOf('b/empty', ''),
      END,
    ].join('');
    for (const pieceBytes of [1, 511, 100_000]) {
      expect(readZip(await zipped(archive, pieceBytes))).toEqual([
        { name: 'a.txt', content: 'one', mode: 0o100644 },
        { name: 'b/', content: '', mode: 0o040755 },
        { name: long, content: 'x'.repeat(5_000), mode: 0o100644 },
        { name: 'b/empty', content: '', mode: 0o100644 },
      ]);
    }
  });

  test('leaves out what would lie elsewhere', async () => {
    expect(readZip(await zipped(blockOf('../../etc/passwd', 'x') + END))).toEqual([]);
  });

  test.each([
    ['in a file', blockOf('a', 'x'.repeat(2_000)).slice(0, 1_000)],
    ['in an extended header', paxBlock('path', 'x'.repeat(2_000)).slice(0, 1_000)],
  ])('that is cut %s ends in an error, not in half an archive', async (_where, archive) => {
    await expect(zipped(archive)).rejects.toThrow();
  });

  test('has the sums that everybody has', () => {
    expect(crc32(new TextEncoder().encode('123456789'))).toBe(0xcbf43926);
    expect(crc32(new TextEncoder().encode('6789'), crc32(new TextEncoder().encode('12345')))).toBe(
      0xcbf43926,
    );
  });
});
