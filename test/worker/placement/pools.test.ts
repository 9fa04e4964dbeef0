import { describe, expect, test } from 'vitest';
import { choosePool, PoolsSchema } from '../../../worker/placement/pools.ts';

const pools = PoolsSchema.parse([
  'default',
  { name: 'eu', region: 'eu-west' },
  { name: 'eu-large', region: 'eu-west', classes: ['large'] },
  { name: 'us', region: 'us-east', classes: ['small', 'standard'] },
]);

describe('the pool of a new session', () => {
  test.each([
    ['names nothing', { pool: 'default' }, 'default'],
    ['names a pool', { pool: 'us' }, 'us'],
    ['names a region', { pool: 'default', region: 'us-east' }, 'us'],
    ['names a region with several pools', { pool: 'default', region: 'eu-west' }, 'eu'],
    ['names a pool in its region', { pool: 'eu-large', region: 'eu-west', class: 'large' }, 'eu-large'],
    ['names a region and a pool of another', { pool: 'eu', region: 'us-east' }, undefined],
    ['names a region that no pool is in', { pool: 'default', region: 'moon' }, undefined],
    ['names a pool that is not for its class', { pool: 'us', class: 'large' }, undefined],
    [
      'names a region without a pool for its class',
      { pool: 'default', region: 'us-east', class: 'io' },
      undefined,
    ],
  ] as const)('that %s', (_name, wish, expected) => {
    const { pool, ...rest } = wish;
    const region = 'region' in rest ? rest.region : undefined;
    const className = 'class' in rest ? rest.class : undefined;
    expect(choosePool(pools, { pool, region, limits: { class: className } })).toBe(expected);
  });

  test('of a class that the default pool is not for is the first one that is', () => {
    const split = PoolsSchema.parse([
      { name: 'default', classes: ['small', 'standard'] },
      { name: 'big', classes: ['large', 'io'] },
    ]);
    expect(choosePool(split, { pool: 'default', region: undefined, limits: { class: 'io' } })).toBe('big');
  });
});

test.each([
  ['without the default one', ['eu']],
  ['that name one twice', ['default', { name: 'default', region: 'eu' }]],
  ['with a class that there is not', ['default', { name: 'a', classes: ['huge'] }]],
])('pools %s are refused', (_name, value) => {
  expect(PoolsSchema.safeParse(value).success).toBe(false);
});
