import { readdirSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeEach, describe, expect, it } from 'vitest';
import {
  HELD_FILE,
  type HeldState,
  readHeldState,
  removeHeldState,
  writeHeldState,
} from '../../../../host-agent/sandbox/held/held-state.ts';
import { CARRIED_AT_REST } from '../../../fixtures/carried-at-rest.ts';
import { HELD_OWNER } from '../../../fixtures/held-owner.ts';
import { temporaryFolder } from '../../../scripts/temporary-folder.ts';

const STATE: HeldState = {
  v: 1,
  runsc_version: 'release-1',
  owner: HELD_OWNER,
  sandbox: CARRIED_AT_REST,
};

let folder: string;
beforeEach(() => {
  folder = temporaryFolder();
});

describe('the state of a sandbox at rest', () => {
  it('is one file that nobody else may read, and is there until it is taken back', () => {
    writeHeldState(folder, STATE);
    expect(readdirSync(folder)).toEqual([HELD_FILE]);
    expect(statSync(join(folder, HELD_FILE)).mode & 0o777).toBe(0o600);
    expect(readHeldState(folder)).toEqual(STATE);
    removeHeldState(folder);
    expect(readHeldState(folder)).toBeUndefined();
    removeHeldState(folder);
  });

  it.each([
    ['cut', JSON.stringify(STATE).slice(0, -1)],
    ['of another version', JSON.stringify({ ...STATE, v: 2 })],
    ['of a user of this machine', JSON.stringify({ ...STATE, sandbox: { ...CARRIED_AT_REST, user_id: 0 } })],
    ['of more than is known', JSON.stringify({ ...STATE, more: true })],
  ])('is none when it is %s', (_what, text) => {
    writeFileSync(join(folder, HELD_FILE), text);
    expect(readHeldState(folder)).toBeUndefined();
  });

  it('is not written when it is too large', () => {
    const environment = ['x'.repeat(1024 * 1024)];
    const sandbox = { ...CARRIED_AT_REST, place: { cwd: '/', environment } };
    expect(() => writeHeldState(folder, { ...STATE, sandbox })).toThrow(RangeError);
    expect(readdirSync(folder)).toEqual([]);
  });
});
