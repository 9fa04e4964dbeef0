/**
 * Lays the layers of an image over each other in the current folder. Runs as a user who may write nowhere else; the disk
 * sees only paths that the tree in memory knows to be free of links.
 */
import {
  chmodSync,
  closeSync,
  fchmodSync,
  futimesSync,
  linkSync,
  lutimesSync,
  mkdirSync,
  openSync,
  rmSync,
  symlinkSync,
  unlinkSync,
  utimesSync,
  writeSync,
} from 'node:fs';
import { ImageRefusal } from '../refusal.ts';
import type { TarEntry, TarReceiver, TarVisitor } from '../tar/reader.ts';
import { componentsOf, shown } from './path.ts';
import {
  type DirectoryNode,
  IMPLICIT_MODE,
  newDirectory,
  type Place,
  resolveDirectory,
  type TreeNode,
  touch,
} from './tree.ts';
import { applyWhiteout, isWhiteout } from './whiteout.ts';

/** No set-user-ID and no set-group-ID. */
const KEPT_MODE_BITS = 0o1777;
const SET_ID_BITS = 0o6000;
/** Until the end, so that every layer can still write into each folder. */
const WORKING_MODE = 0o700;
const LATEST_TIME_S = 2 ** 32;
/** The runtime brings these; what an image has there would never be seen. */
const RUNTIME_DIRECTORIES: ReadonlySet<string> = new Set(['dev', 'proc', 'sys', 'sandgate']);

export interface Counts {
  entries: number;
  /** Device nodes and pipes, and files in the folders that the runtime brings. */
  leftOut: number;
  /** Files that were to run as another user. */
  setIdRemoved: number;
}

export class LayerWriter implements TarVisitor {
  readonly counts: Counts = { entries: 0, leftOut: 0, setIdRemoved: 0 };
  readonly #root: DirectoryNode = newDirectory(0);
  readonly #maxEntries: number;
  #layer = 0;

  constructor(maxEntries: number) {
    this.#maxEntries = maxEntries;
  }

  nextLayer(): void {
    this.#layer += 1;
  }

  onHeader(): void {
    this.#count();
  }

  onEntry(entry: TarEntry): TarReceiver | undefined {
    const components = componentsOf(entry.name);
    const name = components.pop();
    if (name === undefined) {
      this.#root.mtimeS = timeOf(entry);
      return undefined;
    }
    if (components.some(isWhiteout))
      throw new ImageRefusal(`a layer has something below a whiteout: ${shown(entry.name)}`);
    if (isWhiteout(name)) {
      // Nothing is made for a thing that takes away.
      if (this.#exists(components))
        applyWhiteout(name, resolveDirectory(this.#root, components), this.#layer);
      return undefined;
    }
    const isLeftOut = entry.type === 'device' || entry.type === 'pipe';
    const place = isLeftOut ? undefined : this.#resolve(components);
    if (place === undefined || RUNTIME_DIRECTORIES.has(place.path[0] ?? name)) {
      if (entry.type !== 'directory') this.counts.leftOut += 1;
      return undefined;
    }
    return this.#put(entry, place, name);
  }

  /** Makes the folders and links that a sandbox needs, then gives every folder the mode and time it is to have. */
  finish(): void {
    for (const [path, mode] of MOUNT_POINTS) this.#makeMountPoint(path, mode);
    this.#linkMachineIds();
    finishDirectory(this.#root, []);
    utimesSync('.', this.#root.mtimeS, this.#root.mtimeS);
    // Everybody may enter an image, whatever mode its root has elsewhere.
    chmodSync('.', IMPLICIT_MODE);
  }

  #count(): void {
    this.counts.entries += 1;
    if (this.counts.entries > this.#maxEntries) {
      throw new ImageRefusal(`the image has more than ${this.#maxEntries.toLocaleString('en')} entries`);
    }
  }

  /** Undefined where the way leads into a folder that the runtime brings. */
  #resolve(components: readonly string[]): Place | undefined {
    if (RUNTIME_DIRECTORIES.has(components[0] ?? '')) return undefined;
    return resolveDirectory(this.#root, components, {
      make: (path) => {
        this.#count();
        mkdirSync(path.join('/'), { mode: WORKING_MODE });
        return newDirectory(this.#layer);
      },
    });
  }

  #exists(components: readonly string[]): boolean {
    try {
      resolveDirectory(this.#root, components);
      return true;
    } catch (error: unknown) {
      if (error instanceof ImageRefusal) return false;
      throw error;
    }
  }

  #put(entry: TarEntry, place: Place, name: string): TarReceiver | undefined {
    const path = [...place.path, name];
    const existing = place.directory.children.get(name);
    const mode = entry.mode & KEPT_MODE_BITS;
    const mtimeS = timeOf(entry);
    if (entry.type === 'directory') {
      const directory = existing?.kind === 'directory' ? existing : this.#makeDirectory(existing, path);
      Object.assign(directory, { mode, mtimeS });
      return this.#settle(place, path, directory);
    }
    if (entry.type === 'hard link') {
      this.#linkTo(entry, place, path);
      return undefined;
    }
    this.#remove(existing, path);
    const isLink = entry.type === 'symbolic link';
    this.#settle(place, path, {
      kind: isLink ? 'symbolic link' : 'file',
      target: entry.target,
      layer: this.#layer,
    });
    if (!isLink) {
      if ((entry.mode & SET_ID_BITS) !== 0) this.counts.setIdRemoved += 1;
      return fileReceiver(path.join('/'), mode, mtimeS);
    }
    if (entry.target === '') throw new ImageRefusal(`a layer has a link to nothing: ${shown(entry.name)}`);
    symlinkSync(entry.target, path.join('/'));
    lutimesSync(path.join('/'), mtimeS, mtimeS);
    return undefined;
  }

  #makeDirectory(existing: TreeNode | undefined, path: readonly string[]): DirectoryNode {
    this.#remove(existing, path);
    mkdirSync(path.join('/'), { mode: WORKING_MODE });
    return newDirectory(this.#layer);
  }

  /** The second name of a file of the image, and of nothing else. */
  #linkTo(entry: TarEntry, place: Place, path: readonly string[]): void {
    const components = componentsOf(entry.target);
    const targetName = components.pop() ?? '';
    const from = resolveDirectory(this.#root, components);
    const node = from.directory.children.get(targetName);
    if (node === undefined || node.kind === 'directory') {
      throw new ImageRefusal(
        `a layer has a hard link to what is no file of the image: ${shown(entry.name)} to ${shown(entry.target)}`,
      );
    }
    const target = [...from.path, targetName].join('/');
    const link = path.join('/');
    if (target === link) return;
    const existing = place.directory.children.get(path.at(-1) ?? '');
    if (existing?.kind === 'directory' && target.startsWith(`${link}/`)) {
      throw new ImageRefusal(`a layer has a hard link in place of its own folder: ${shown(entry.name)}`);
    }
    this.#remove(existing, path);
    linkSync(target, link);
    this.#settle(place, path, { ...node, layer: this.#layer });
  }

  #remove(existing: TreeNode | undefined, path: readonly string[]): void {
    if (existing?.kind === 'directory') rmSync(path.join('/'), { recursive: true });
    else if (existing !== undefined) unlinkSync(path.join('/'));
  }

  #settle({ directory }: Place, path: readonly string[], node: TreeNode): undefined {
    directory.children.set(path.at(-1) ?? '', node);
    touch(this.#root, path, this.#layer);
  }

  /** Only where the image has the folder, and as a folder: a link on the way may lead anywhere in it. */
  #linkMachineIds(): void {
    for (const [path, target] of MACHINE_ID_LINKS) {
      let directory: TreeNode | undefined = this.#root;
      for (const name of path) {
        directory = directory?.kind === 'directory' ? directory.children.get(name) : undefined;
      }
      if (directory?.kind !== 'directory') continue;
      const link = [...path, 'machine-id'];
      this.#remove(directory.children.get('machine-id'), link);
      symlinkSync(target, link.join('/'));
      lutimesSync(link.join('/'), 0, 0);
      directory.children.set('machine-id', { kind: 'symbolic link', target, layer: this.#layer });
    }
  }

  /** A link or a file there would send the mount elsewhere, or fail it. */
  #makeMountPoint(path: readonly string[], mode: number): void {
    let directory = this.#root;
    for (const [at, name] of path.entries()) {
      const here = path.slice(0, at + 1);
      const existing = directory.children.get(name);
      const node = existing?.kind === 'directory' ? existing : this.#makeDirectory(existing, here);
      directory.children.set(name, node);
      directory = node;
    }
    directory.mode = mode;
  }
}

/** Two sandboxes of one image would else be the same machine to programs that ask. */
const MACHINE_ID_LINKS: readonly (readonly [directory: readonly string[], target: string])[] = [
  [['etc'], '/run/sandgate/machine_id'],
  [['var', 'lib', 'dbus'], '/etc/machine-id'],
];

const MOUNT_POINTS: readonly (readonly [path: readonly string[], mode: number])[] = [
  [['dev', 'shm'], 0o755],
  [['proc'], 0o555],
  [['run', 'sandgate'], 0o755],
  [['sandgate'], 0o755],
  [['sys'], 0o555],
  [['tmp'], 0o1777],
  [['workspace'], 0o755],
];

function timeOf({ mtimeS }: TarEntry): number {
  return Math.min(Math.max(0, mtimeS), LATEST_TIME_S);
}

function fileReceiver(path: string, mode: number, mtimeS: number): TarReceiver {
  const descriptor = openSync(path, 'wx', 0o600);
  return {
    write(bytes) {
      for (let at = 0; at < bytes.length; ) at += writeSync(descriptor, bytes, at);
    },
    end() {
      fchmodSync(descriptor, mode);
      futimesSync(descriptor, mtimeS, mtimeS);
      closeSync(descriptor);
    },
  };
}

/** The deepest first: a folder that nobody may enter hides what is below it from us too. */
function finishDirectory({ children }: DirectoryNode, path: readonly string[]): void {
  for (const [name, node] of children) {
    if (node.kind !== 'directory') continue;
    const below = [...path, name];
    finishDirectory(node, below);
    const at = below.join('/');
    utimesSync(at, node.mtimeS, node.mtimeS);
    chmodSync(at, node.mode);
  }
}
