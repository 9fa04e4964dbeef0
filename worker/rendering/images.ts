/** The images and sounds of a result that a model can be given. */
import type { RichResult } from '../../shared/execution.ts';

const SHOWN = ['image/png', 'image/jpeg', 'image/gif', 'image/webp'];
const MAX_OF_A_KIND = 8;
/** Base64 of one of them: the least of what model APIs take. */
const MAX_CHARACTERS = 5_000_000;

export function isShown(result: RichResult): boolean {
  return SHOWN.includes(result.mime) && result.data.length <= MAX_CHARACTERS;
}

export function imagesOf(results: readonly RichResult[]): RichResult[] {
  return results.filter(isShown).slice(0, MAX_OF_A_KIND);
}

const HEARD = ['audio/wav', 'audio/mpeg', 'audio/ogg', 'audio/webm', 'audio/flac', 'audio/mp4'];

export function soundsOf(results: readonly RichResult[]): RichResult[] {
  return results
    .filter(({ mime, data }) => HEARD.includes(mime) && data.length <= MAX_CHARACTERS)
    .slice(0, MAX_OF_A_KIND);
}
