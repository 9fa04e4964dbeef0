/** What one check of `doctor` found: pass, warn or fail, and for the last two what to do about it. */

export type Level = 'pass' | 'warn' | 'fail';

export interface Finding {
  check: string;
  level: Level;
  found: string;
  /** Null for a pass. */
  cure: string | null;
}

export function pass(check: string, found: string): Finding {
  return { check, level: 'pass', found, cure: null };
}

export function warn(check: string, found: string, cure: string): Finding {
  return { check, level: 'warn', found, cure };
}

export function fail(check: string, found: string, cure: string): Finding {
  return { check, level: 'fail', found, cure };
}
