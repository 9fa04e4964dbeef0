/**
 * A git bundle (format v2) with one commit, made without git, which a machine that runs the demo need not have.
 * Formats: gitformat-bundle(5), gitformat-pack(5).
 */
import { createHash } from 'node:crypto';
import { deflateSync } from 'node:zlib';

export interface BundledCommit {
  branch: string;
  /** `Name <address>` */
  author: string;
  message: string;
  atS: number;
  /** Content by path, with `/` between folders. */
  files: ReadonlyMap<string, Uint8Array>;
}

type ObjectKind = 'commit' | 'tree' | 'blob';
const PACK_TYPE: Record<ObjectKind, number> = { commit: 1, tree: 2, blob: 3 };
const FILE_MODE = '100644';
const FOLDER_MODE = '40000';

interface GitObject {
  kind: ObjectKind;
  body: Buffer;
}
interface TreeEntry {
  name: string;
  mode: string;
  id: string;
}

export function gitBundle(commit: BundledCommit): Buffer {
  const objects = new Map<string, GitObject>();
  const tree = addTree(objects, commit.files);
  const signature = `${commit.author} ${commit.atS} +0000`;
  const text = `tree ${tree}\nauthor ${signature}\ncommitter ${signature}\n\n${commit.message}\n`;
  const head = addObject(objects, 'commit', Buffer.from(text));
  const header = `# v2 git bundle\n${head} HEAD\n${head} refs/heads/${commit.branch}\n\n`;
  return Buffer.concat([Buffer.from(header), packOf([...objects.values()])]);
}

function addObject(objects: Map<string, GitObject>, kind: ObjectKind, body: Buffer): string {
  const id = createHash('sha1').update(`${kind} ${body.length}\0`).update(body).digest('hex');
  objects.set(id, { kind, body });
  return id;
}

function addTree(objects: Map<string, GitObject>, files: ReadonlyMap<string, Uint8Array>): string {
  const entries: TreeEntry[] = [];
  const folders = new Map<string, Map<string, Uint8Array>>();
  for (const [path, content] of files) {
    const slash = path.indexOf('/');
    if (slash === -1) {
      entries.push({ name: path, mode: FILE_MODE, id: addObject(objects, 'blob', Buffer.from(content)) });
      continue;
    }
    const name = path.slice(0, slash);
    const inside = folders.get(name) ?? new Map<string, Uint8Array>();
    folders.set(name, inside.set(path.slice(slash + 1), content));
  }
  for (const [name, inside] of folders)
    entries.push({ name, mode: FOLDER_MODE, id: addTree(objects, inside) });
  // git compares the name of a folder as if it ended in a slash.
  const sortKey = ({ name, mode }: TreeEntry) => Buffer.from(mode === FOLDER_MODE ? `${name}/` : name);
  entries.sort((left, right) => Buffer.compare(sortKey(left), sortKey(right)));
  const body = entries.flatMap(({ mode, name, id }) => [
    Buffer.from(`${mode} ${name}\0`),
    Buffer.from(id, 'hex'),
  ]);
  return addObject(objects, 'tree', Buffer.concat(body));
}

function packOf(objects: readonly GitObject[]): Buffer {
  const header = Buffer.alloc(12);
  header.write('PACK');
  header.writeUInt32BE(2, 4);
  header.writeUInt32BE(objects.length, 8);
  const entries = objects.flatMap(({ kind, body }) => [entryHeader(kind, body.length), deflateSync(body)]);
  const pack = Buffer.concat([header, ...entries]);
  return Buffer.concat([pack, createHash('sha1').update(pack).digest()]);
}

/** Type and size: four bits of the size beside the type, then seven at a time, lowest first. */
function entryHeader(kind: ObjectKind, sizeBytes: number): Buffer {
  const bytes: number[] = [];
  let current = (PACK_TYPE[kind] << 4) | (sizeBytes & 0x0f);
  for (let rest = sizeBytes >> 4; rest > 0; rest >>= 7) {
    bytes.push(current | 0x80);
    current = rest & 0x7f;
  }
  bytes.push(current);
  return Buffer.from(bytes);
}
