/** The images of a result that a model can be shown. */
import type { RichResult } from '../../shared/execution.ts';

const SHOWN = ['image/png', 'image/jpeg', 'image/gif', 'image/webp'];
const MAX_IMAGES = 8;
/** Base64 of one image: the least of what model APIs take. */
const MAX_IMAGE_CHARACTERS = 5_000_000;

export function isShown(result: RichResult): boolean {
  return SHOWN.includes(result.mime) && result.data.length <= MAX_IMAGE_CHARACTERS;
}

export function imagesOf(results: readonly RichResult[]): RichResult[] {
  return results.filter(isShown).slice(0, MAX_IMAGES);
}
