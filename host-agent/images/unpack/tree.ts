/**
 * The file system of an image as its layers make it, held in memory. Where a path leads is decided here, by links as they
 * would count inside of the image; the disk is only ever asked for paths without a link in them.
 */
import { ImageRefusal } from '../refusal.ts';
import { requireBounds, shown } from './path.ts';

export interface DirectoryNode {
  kind: 'directory';
  children: Map<string, TreeNode>;
  mode: number;
  mtimeS: number;
  /** The layer that last put it, or something below it, here. */
  layer: number;
}

export interface LeafNode {
  kind: 'file' | 'symbolic link';
  /** Of a symbolic link. */
  target: string;
  layer: number;
}

export type TreeNode = DirectoryNode | LeafNode;

export interface Place {
  directory: DirectoryNode;
  /** From the root, without links. */
  path: readonly string[];
}

export const IMPLICIT_MODE = 0o755;
/** As Linux counts. */
const MAX_LINKS = 40;

export function newDirectory(layer: number): DirectoryNode {
  return { kind: 'directory', children: new Map(), mode: IMPLICIT_MODE, mtimeS: 0, layer };
}

export interface ResolveOptions {
  /** Makes a folder that is not there; without it, a missing one is a refusal. */
  make?: (path: readonly string[]) => DirectoryNode;
}

/** Follows every link on the way, and goes up no further than to the root. */
export function resolveDirectory(
  root: DirectoryNode,
  components: readonly string[],
  { make }: ResolveOptions = {},
): Place {
  const ahead = components.toReversed();
  const trail: { name: string; directory: DirectoryNode }[] = [];
  let links = 0;
  for (let component = ahead.pop(); component !== undefined; component = ahead.pop()) {
    if (component === '' || component === '.') continue;
    if (component === '..') {
      trail.pop();
      continue;
    }
    const directory = trail.at(-1)?.directory ?? root;
    const path = [...trail.map(({ name }) => name), component];
    requireBounds(path, path.join('/'));
    let node = directory.children.get(component);
    if (node === undefined && make !== undefined) {
      node = make(path);
      directory.children.set(component, node);
    }
    if (node?.kind === 'symbolic link') {
      links += 1;
      if (links > MAX_LINKS)
        throw new ImageRefusal(`a layer has a path with too many links: ${shown(path.join('/'))}`);
      if (node.target.startsWith('/')) trail.length = 0;
      ahead.push(...node.target.split('/').toReversed());
      continue;
    }
    if (node?.kind !== 'directory') {
      const what = node === undefined ? 'something that is not there' : 'a file';
      throw new ImageRefusal(`a layer has a path that passes through ${what}: ${shown(path.join('/'))}`);
    }
    trail.push({ name: component, directory: node });
  }
  return { directory: trail.at(-1)?.directory ?? root, path: trail.map(({ name }) => name) };
}

/** A file of a layer cannot be taken away by the same layer, so every folder above it remembers the layer. */
export function touch(root: DirectoryNode, path: readonly string[], layer: number): void {
  let directory = root;
  for (const name of path) {
    directory.layer = layer;
    const next = directory.children.get(name);
    if (next === undefined) return;
    next.layer = layer;
    if (next.kind !== 'directory') return;
    directory = next;
  }
}
