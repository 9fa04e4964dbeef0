/** Paths of an image's layers, before anything is done with them. */
import { ImageRefusal } from '../refusal.ts';

const MAX_PATH_BYTES = 4000;
const MAX_COMPONENT_BYTES = 255;
export const MAX_DEPTH = 128;

/** Absolute ones start at the root of the image, as all others do. None may go up: honest archives have no need to. */
export function componentsOf(path: string): string[] {
  const components = path.split('/').filter((component) => component !== '' && component !== '.');
  if (components.includes('..')) throw new ImageRefusal(`a layer has a path that goes up: ${shown(path)}`);
  requireBounds(components, path);
  return components;
}

export function requireBounds(components: readonly string[], path: string): void {
  const isTooLong =
    components.length > MAX_DEPTH ||
    Buffer.byteLength(components.join('/')) > MAX_PATH_BYTES ||
    components.some((component) => Buffer.byteLength(component) > MAX_COMPONENT_BYTES);
  if (isTooLong) throw new ImageRefusal(`a layer has a path that is too long: ${shown(path)}`);
}

/** For a message: bounded, and without control characters. */
export function shown(path: string): string {
  return JSON.stringify(path.length > 100 ? `${path.slice(0, 100)}…` : path);
}
