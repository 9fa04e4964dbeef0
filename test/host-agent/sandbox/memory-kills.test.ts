import { describe, expect, it } from 'vitest';
import { MemoryKills } from '../../../host-agent/sandbox/memory-kills.ts';

describe('a kill for memory', () => {
  it('is that of the first call that fails after it, and of no other', () => {
    const kills = new MemoryKills();
    kills.begin(0, false);
    kills.begin(0, true);
    expect(kills.claim(0)).toBe(false);
    expect(kills.claim(1)).toBe(true);
    expect(kills.claim(1)).toBe(false);
    expect(kills.claim(2)).toBe(true);
  });

  it('before any call ran is nobody’s, and one that a call beside saw is not lost', () => {
    const kills = new MemoryKills();
    kills.begin(3, false);
    expect(kills.claim(3)).toBe(false);
    kills.begin(4, true);
    expect(kills.claim(4)).toBe(true);
  });
});
