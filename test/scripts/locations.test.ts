import { homedir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { locations } from '../../scripts/locations.ts';

const { repositoryDir } = locations({});

test('without settings the state lies in the checkout and the cache is the machine’s', () => {
  expect(locations({})).toEqual({
    repositoryDir: join(import.meta.dirname, '../..'),
    stateDir: join(repositoryDir, '.sandgate'),
    cacheDir: '/var/cache/sandgate',
  });
});

test('both folders can be set: absolute, from the checkout, or from the home folder', () => {
  const set = locations({ SANDGATE_STATE_DIR: 'state/one', SANDGATE_CACHE_DIR: '~/cache' });
  expect(set.stateDir).toBe(join(repositoryDir, 'state/one'));
  expect(set.cacheDir).toBe(join(homedir(), 'cache'));
  expect(locations({ SANDGATE_STATE_DIR: '/srv/state' }).stateDir).toBe('/srv/state');
});

test('an empty setting is none', () => {
  expect(locations({ SANDGATE_STATE_DIR: '', SANDGATE_CACHE_DIR: '' })).toEqual(locations({}));
});
