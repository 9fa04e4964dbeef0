import { beforeEach, describe, expect, it } from 'vitest';
import { Rest } from '../../../../host-agent/sandbox/held/rest.ts';
import { CARRIED_AT_REST } from '../../../fixtures/carried-at-rest.ts';
import { HELD_OWNER } from '../../../fixtures/held-owner.ts';

let done: string[];
let isBusy: boolean;
let stood: Promise<void>;
let remove: () => void;
let rest: Rest;

beforeEach(() => {
  done = [];
  isBusy = false;
  stood = Promise.resolve();
  remove = () => void done.push('remove');
  rest = new Rest({
    link: {
      get isBusy() {
        return isBusy;
      },
      async rest() {
        await stood;
        return { ok: true, value: undefined };
      },
      restOn: () => undefined,
      async goOn() {
        done.push('go on');
        return { ok: true, value: undefined };
      },
      close: () => void done.push('close'),
    },
    settled: async () => true,
    carry: async () => CARRIED_AT_REST,
    write: ({ sessionId }) => void done.push(`write ${sessionId}`),
    remove: () => remove(),
  });
});

describe('a sandbox that comes to rest', () => {
  it('is written down with its session, and goes on only when that is taken back', async () => {
    rest.keepFor(HELD_OWNER);
    (await rest.begin())?.();
    expect(rest.isWritten).toBe(true);
    rest.stir();
    expect(done).toEqual([`write ${HELD_OWNER.sessionId}`, 'remove', 'go on']);
    expect(rest.isWritten).toBe(false);
  });

  it('ends where the disk keeps what was written: another agent would believe it', async () => {
    rest.keepFor(HELD_OWNER);
    (await rest.begin())?.();
    remove = () => {
      throw new Error('EROFS');
    };
    rest.stir();
    expect(done).toEqual([`write ${HELD_OWNER.sessionId}`, 'close']);
  });

  it('is nobody’s without a session, while a call runs, and while a program is spoken to', async () => {
    expect(await rest.begin()).toBeUndefined();
    rest.keepFor(HELD_OWNER);
    rest.unless(() => true);
    expect(await rest.begin()).toBeUndefined();
    rest.unless(() => false);
    isBusy = true;
    expect(await rest.begin()).toBeUndefined();
    expect(done).toEqual([]);
  });

  it('is not written down when something is wanted of it meanwhile', async () => {
    rest.keepFor(HELD_OWNER);
    const standing = Promise.withResolvers<void>();
    stood = standing.promise;
    const begun = rest.begin();
    await Promise.resolve();
    await Promise.resolve();
    rest.stir();
    standing.resolve();
    expect(await begun).toBeUndefined();
    expect(done.filter((what) => what.startsWith('write'))).toEqual([]);
  });
});
