/** What a layer takes away from those below it: `.wh.<name>` one thing, `.wh..wh..opq` all that a folder holds. */
import { rmSync } from 'node:fs';
import { ImageRefusal } from '../refusal.ts';
import { shown } from './path.ts';
import type { DirectoryNode, Place } from './tree.ts';

const PREFIX = '.wh.';
const OPAQUE = '.wh..wh..opq';
/** Bookkeeping of an old union file system; means nothing outside of it. */
const META_PREFIX = '.wh..wh.';

export function isWhiteout(name: string): boolean {
  return name.startsWith(PREFIX);
}

/** What came with this very layer stays, wherever in the layer the whiteout stands. */
export function applyWhiteout(name: string, { directory, path }: Place, layer: number): void {
  if (name === OPAQUE) removeLower(directory, path, layer);
  if (name.startsWith(META_PREFIX)) return;
  const hidden = name.slice(PREFIX.length);
  if (hidden === '' || hidden === '.' || hidden === '..') {
    throw new ImageRefusal(`a layer has a whiteout of nothing: ${shown([...path, name].join('/'))}`);
  }
  removeChild(directory, [...path, hidden], layer);
}

function removeLower(directory: DirectoryNode, path: readonly string[], layer: number): void {
  // An entry that is deleted while a map is gone through is no matter to the rest.
  for (const name of directory.children.keys()) removeChild(directory, [...path, name], layer);
}

function removeChild(directory: DirectoryNode, path: readonly string[], layer: number): void {
  const name = path.at(-1) ?? '';
  const node = directory.children.get(name);
  if (node === undefined) return;
  if (node.layer === layer) {
    if (node.kind === 'directory') removeLower(node, path, layer);
    return;
  }
  rmSync(path.join('/'), { recursive: true });
  directory.children.delete(name);
}
