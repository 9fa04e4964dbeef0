/**
 * The unpacking process. It starts as root only to open the layers and to enter the folder; before it reads a byte of
 * them it is a user who owns nothing but that folder. It ends when its parent does.
 */
import { openSync } from 'node:fs';
import { ImageRefusal } from '../refusal.ts';
import { readTar } from '../tar/reader.ts';
import { UnpackJobSchema, type UnpackReport } from './job.ts';
import { ByteBudget, layerStream } from './layer-stream.ts';
import { LayerWriter } from './layers.ts';

async function unpack(text: string): Promise<UnpackReport> {
  const { rootfsPath, userId, layers, limits } = UnpackJobSchema.parse(JSON.parse(text));
  const opened = layers.map(({ path, diffSha256 }) => ({ descriptor: openSync(path, 'r'), diffSha256 }));
  process.chdir(rootfsPath);
  becomeUser(userId);
  const budget = new ByteBudget(limits);
  const writer = new LayerWriter(limits.maxEntries);
  for (const { descriptor, diffSha256 } of opened) {
    const stream = layerStream(descriptor, budget);
    writer.nextLayer();
    await readTar(stream, writer);
    if (stream.sha256() !== diffSha256) throw new ImageRefusal('a layer is not the one that the image names');
  }
  writer.finish();
  const { entries, leftOut, setIdRemoved } = writer.counts;
  return { ok: true, entries, left_out: leftOut, set_id_removed: setIdRemoved };
}

function becomeUser(userId: number): void {
  process.umask(0o022);
  process.setgroups?.([]);
  process.setgid?.(userId);
  process.setuid?.(userId);
  if (process.getuid?.() !== userId || process.geteuid?.() !== userId || process.getegid?.() !== userId) {
    throw new Error('the process is still of the user that started it');
  }
}

function reportOf(error: unknown): UnpackReport {
  if (error instanceof ImageRefusal) return { ok: false, detail: error.message };
  const isSystemError = error instanceof Error && 'code' in error && typeof error.code === 'string';
  if (!isSystemError) throw error;
  const isCompression = String(error.code).startsWith('Z_') || String(error.code).startsWith('ZSTD_');
  return { ok: false, detail: isCompression ? 'a layer is damaged: it does not decompress' : error.message };
}

let received = '';
process.stdin.setEncoding('utf8');
process.stdin.on('data', (chunk) => {
  received += chunk;
  if (!received.endsWith('\n')) return;
  const job = received;
  received = '';
  unpack(job)
    .catch(reportOf)
    .then((report) => process.stdout.write(`${JSON.stringify(report)}\n`, () => process.exit(0)))
    .catch((error: unknown) => {
      console.error(error);
      process.exit(1);
    });
});
process.stdin.on('end', () => process.exit(1));
