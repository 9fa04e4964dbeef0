import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { Freezer, IDLE_MS } from '../../../host-agent/sandbox/freezer.ts';

let quiet: boolean;
let done: string[];
let freezer: Freezer;

beforeEach(() => {
  vi.useFakeTimers();
  quiet = true;
  done = [];
  freezer = new Freezer({
    freeze: () => void done.push('freeze'),
    thaw: () => void done.push('thaw'),
    isQuiet: async () => quiet,
  });
});
afterEach(() => {
  vi.useRealTimers();
});

describe('Freezer', () => {
  it('has a sandbox brought to rest before it is frozen, and stirred before it is thawed', async () => {
    const tell = (what: string) => () => void done.push(what);
    const resting = new Freezer({
      freeze: tell('freeze'),
      thaw: tell('thaw'),
      isQuiet: async () => quiet,
      rest: { begin: async () => tell('keep'), stir: tell('stir') },
    });
    resting.touch();
    await vi.advanceTimersByTimeAsync(IDLE_MS);
    expect(done).toEqual(['keep', 'freeze']);
    resting.hold();
    expect(done).toEqual(['keep', 'freeze', 'stir', 'thaw']);
  });

  it('keeps nothing of a sandbox that something came for as it was brought to rest', async () => {
    const tell = (what: string) => () => void done.push(what);
    const rest = Promise.withResolvers<() => void>();
    const wanted = new Freezer({
      freeze: tell('freeze'),
      thaw: tell('thaw'),
      isQuiet: async () => quiet,
      rest: { begin: () => rest.promise, stir: tell('stir') },
    });
    wanted.touch();
    await vi.advanceTimersByTimeAsync(IDLE_MS);
    wanted.hold();
    rest.resolve(tell('keep'));
    await vi.advanceTimersByTimeAsync(0);
    expect(done).toEqual(['stir']);
  });

  it('looks at a sandbox at once when it is told to, and once only', async () => {
    const tell = (what: string) => () => void done.push(what);
    const told = new Freezer({
      freeze: tell('freeze'),
      thaw: tell('thaw'),
      isQuiet: async () => quiet,
      rest: { begin: async () => tell('keep'), stir: tell('stir') },
    });
    told.touch();
    await Promise.all([vi.advanceTimersByTimeAsync(IDLE_MS), told.lookNow()]);
    await told.lookNow();
    expect(done).toEqual(['keep', 'freeze']);
  });

  it('goes on with a sandbox that somebody before it has frozen', () => {
    freezer.wasFrozen();
    expect(freezer.frozen).toBe(true);
    freezer.touch();
    expect(done).toEqual(['thaw']);
  });

  it('freezes a sandbox without traffic and thaws it before the next frame', async () => {
    freezer.touch();
    await vi.advanceTimersByTimeAsync(IDLE_MS - 1);
    expect(done).toEqual([]);
    await vi.advanceTimersByTimeAsync(1);
    expect(done).toEqual(['freeze']);
    freezer.touch();
    expect(done).toEqual(['freeze', 'thaw']);
    expect(freezer.frozen).toBe(false);
    await vi.advanceTimersByTimeAsync(IDLE_MS);
    expect(done).toEqual(['freeze', 'thaw', 'freeze']);
  });

  it('counts the silence from the last frame', async () => {
    freezer.touch();
    await vi.advanceTimersByTimeAsync(IDLE_MS / 2);
    freezer.touch();
    await vi.advanceTimersByTimeAsync(IDLE_MS - 1);
    expect(done).toEqual([]);
    await vi.advanceTimersByTimeAsync(1);
    expect(done).toEqual(['freeze']);
  });

  it('never freezes what is held, however often it is let go', async () => {
    const first = freezer.hold();
    const second = freezer.hold();
    first();
    first();
    freezer.touch();
    await vi.advanceTimersByTimeAsync(100 * IDLE_MS);
    expect(done).toEqual([]);
    second();
    await vi.advanceTimersByTimeAsync(IDLE_MS);
    expect(done).toEqual(['freeze']);
  });

  it('keeps still what runs and what traffic comes for, until it is let go', async () => {
    const letSleep = freezer.hold();
    const goOn = freezer.standStill();
    const again = freezer.standStill();
    expect(done).toEqual(['freeze']);
    freezer.touch();
    await vi.advanceTimersByTimeAsync(100 * IDLE_MS);
    goOn();
    goOn();
    expect(done).toEqual(['freeze']);
    again();
    expect(done).toEqual(['freeze', 'thaw']);
    await vi.advanceTimersByTimeAsync(100 * IDLE_MS);
    expect(done).toEqual(['freeze', 'thaw']);
    letSleep();
    await vi.advanceTimersByTimeAsync(IDLE_MS);
    expect(done).toEqual(['freeze', 'thaw', 'freeze']);
  });

  it('that stands still is awake when it is to end', () => {
    freezer.standStill();
    freezer.dispose();
    expect(done).toEqual(['freeze', 'thaw']);
  });

  it('wakes what it holds', async () => {
    freezer.touch();
    await vi.advanceTimersByTimeAsync(IDLE_MS);
    freezer.hold();
    expect(done).toEqual(['freeze', 'thaw']);
  });

  it('leaves a sandbox with programs in the background alone, and looks again less and less often', async () => {
    let looks = 0;
    const busy = new Freezer({
      freeze: () => void done.push('freeze'),
      thaw: () => undefined,
      isQuiet: async () => {
        looks += 1;
        return quiet;
      },
    });
    quiet = false;
    busy.touch();
    await vi.advanceTimersByTimeAsync(300_000);
    expect(looks).toBeGreaterThan(8);
    expect(looks).toBeLessThan(20);
    expect(done).toEqual([]);
    quiet = true;
    await vi.advanceTimersByTimeAsync(30_000);
    expect(done).toEqual(['freeze']);
  });

  it('does not freeze on an answer that traffic has overtaken', async () => {
    const { promise, resolve } = Promise.withResolvers<boolean>();
    const overtaken = new Freezer({
      freeze: () => void done.push('freeze'),
      thaw: () => undefined,
      isQuiet: () => promise,
    });
    overtaken.touch();
    await vi.advanceTimersByTimeAsync(IDLE_MS);
    overtaken.touch();
    resolve(true);
    await vi.advanceTimersByTimeAsync(IDLE_MS - 1);
    expect(done).toEqual([]);
  });

  it('does not freeze a sandbox that does not answer', async () => {
    const silent = new Freezer({
      freeze: () => void done.push('freeze'),
      thaw: () => undefined,
      isQuiet: () => Promise.reject(new Error('gone')),
    });
    silent.touch();
    await vi.advanceTimersByTimeAsync(2 * IDLE_MS);
    expect(done).toEqual([]);
  });

  it('leaves a sandbox awake that the kernel does not freeze', async () => {
    const refused = new Freezer({
      freeze: () => {
        throw new Error('EIO');
      },
      thaw: () => void done.push('thaw'),
      isQuiet: async () => true,
    });
    refused.touch();
    await vi.advanceTimersByTimeAsync(IDLE_MS);
    expect(done).toEqual(['thaw']);
    expect(refused.frozen).toBe(false);
  });

  it('is looked at again where the kernel could be told nothing, and ends nothing else', async () => {
    let isDeaf = true;
    const tell = (word: string) => () => {
      if (isDeaf) throw new Error('EMFILE');
      done.push(word);
    };
    const deaf = new Freezer({ freeze: tell('freeze'), thaw: tell('thaw'), isQuiet: async () => true });
    deaf.touch();
    await vi.advanceTimersByTimeAsync(IDLE_MS);
    expect(deaf.frozen).toBe(false);
    isDeaf = false;
    await vi.advanceTimersByTimeAsync(60 * IDLE_MS);
    expect(done).toEqual(['freeze']);
  });

  it('thaws for good when it is disposed of', async () => {
    freezer.touch();
    await vi.advanceTimersByTimeAsync(IDLE_MS);
    freezer.dispose();
    expect(done).toEqual(['freeze', 'thaw']);
    freezer.touch();
    await vi.advanceTimersByTimeAsync(10 * IDLE_MS);
    expect(done).toEqual(['freeze', 'thaw']);
  });

  it('stands still on pause whatever goes to the guest, and wakes for it at the end', async () => {
    const letSleep = freezer.hold();
    expect(freezer.pause()).toBe(true);
    freezer.touch();
    freezer.hold()();
    letSleep();
    await vi.advanceTimersByTimeAsync(100 * IDLE_MS);
    expect(done).toEqual(['freeze']);
    let isOver = false;
    void freezer.standing?.then(() => {
      isOver = true;
    });
    freezer.resume();
    await vi.advanceTimersByTimeAsync(0);
    expect([done, isOver, freezer.standing]).toEqual([['freeze', 'thaw'], true, undefined]);
    await vi.advanceTimersByTimeAsync(IDLE_MS);
    expect(done).toEqual(['freeze', 'thaw', 'freeze']);
  });

  it('is awake for good once it is given up, also on pause', () => {
    freezer.pause();
    freezer.dispose();
    expect(done).toEqual(['freeze', 'thaw']);
    expect(freezer.pause()).toBe(false);
  });

  it('stands as long as anybody wants it to', () => {
    const goOn = freezer.standStill();
    expect(freezer.pause()).toBe(true);
    goOn();
    expect(done).toEqual(['freeze']);
    const again = freezer.standStill();
    freezer.resume();
    expect(done).toEqual(['freeze']);
    again();
    expect(done).toEqual(['freeze', 'thaw']);
  });
});
