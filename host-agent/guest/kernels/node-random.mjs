/**
 * The numbers of `Math.random`, made of the kernel's random source: V8's own generator goes on from its state, so that
 * copies of this process would all draw the same from it.
 */
import { closeSync, openSync, readSync } from 'node:fs';

/** Drawn at a time: to ask for each would cost a hundred times as much. */
const DRAWS = 512;
const LOW_BITS = 2 ** 26;
const ONE = 2 ** 53;

export function randomNumbers() {
  const words = new Uint32Array(2 * DRAWS);
  const bytes = new Uint8Array(words.buffer);
  let left = 0;

  function fill() {
    const source = openSync('/dev/urandom', 'r');
    try {
      for (let filled = 0; filled < bytes.length; ) {
        filled += readSync(source, bytes, filled, bytes.length - filled, null);
      }
    } finally {
      closeSync(source);
    }
    left = DRAWS;
  }

  return {
    /** At least 0 and less than 1, with 53 random bits. */
    random: () => {
      if (left === 0) fill();
      left -= 1;
      return ((words[2 * left] >>> 5) * LOW_BITS + (words[2 * left + 1] >>> 6)) / ONE;
    },
    /** This process is a copy now: what was drawn ahead has other owners too. */
    renew: () => {
      left = 0;
    },
  };
}
