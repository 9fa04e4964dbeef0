/**
 * What is random in this process: its generators go on from their state, so that copies of it would all draw the same from
 * them. `Math.random` is made of the kernel's random source, and OpenSSL, behind `crypto`, is seeded anew in a copy.
 */
import { closeSync, openSync, readSync } from 'node:fs';
import { createRequire } from 'node:module';
import { fileURLToPath } from 'node:url';

/** Drawn at a time: to ask for each would cost a hundred times as much. */
const DRAWS = 512;
const LOW_BITS = 2 ** 26;
const ONE = 2 ** 53;
/** Node draws these ahead, for so many calls at most. */
const UUIDS_AHEAD = 128;
const INTEGERS_AHEAD = 1024;

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

/** Gives what seeds OpenSSL anew in all threads, and does away with what Node drew ahead in this one. */
export function cryptoRenewal() {
  const require = createRequire(import.meta.url);
  const addon = { exports: {} };
  try {
    process.dlopen(addon, fileURLToPath(new URL('./node-random.node', import.meta.url)));
  } catch {
    // A Node that loads no addons: what it drew ahead is done away with all the same.
  }
  const reseed = addon.exports;
  return () => {
    if (typeof reseed === 'function') reseed();
    // Not loaded before: it takes a while, and most cells need none of it.
    const { randomInt, randomUUID } = require('node:crypto');
    for (let drawn = 0; drawn < UUIDS_AHEAD; drawn += 1) randomUUID();
    for (let drawn = 0; drawn <= INTEGERS_AHEAD; drawn += 1) randomInt(2);
  };
}
