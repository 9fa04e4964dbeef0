/** Which pools an edge has, and which of them a new session goes to. Pure. */
import * as z from 'zod';
import { DEFAULT_POOL, PoolNameSchema } from '../../shared/ids.ts';
import { type CreateSession, RegionSchema } from '../../shared/session.ts';

const ClassSchema = z.enum(['small', 'standard', 'large', 'io']);

const PoolFactsSchema = z.strictObject({
  name: PoolNameSchema,
  /** Where its hosts are; a session that names a region goes to a pool of it. */
  region: RegionSchema.optional(),
  /** Resource classes that it is for; every class where it says none. */
  classes: z.array(ClassSchema).min(1).optional(),
});
export type PoolFacts = z.infer<typeof PoolFactsSchema>;

/** The binding `POOLS`: names, or names with what the pool is for. */
export const PoolsSchema = z
  .array(z.union([PoolNameSchema.transform((name): PoolFacts => ({ name })), PoolFactsSchema]))
  .max(256)
  .refine((pools) => pools.some(({ name }) => name === DEFAULT_POOL), `must hold ${DEFAULT_POOL}`)
  .refine((pools) => new Set(pools.map(({ name }) => name)).size === pools.length, 'names a pool twice')
  .transform((pools): ReadonlyMap<string, PoolFacts> => new Map(pools.map((pool) => [pool.name, pool])));

type Wish = Pick<CreateSession, 'pool' | 'region'> & { limits: Pick<CreateSession['limits'], 'class'> };

/**
 * The pool that a session names, or else the first one of its region and class. Undefined where none fits: then what was
 * asked for contradicts itself.
 */
export function choosePool(
  pools: ReadonlyMap<string, PoolFacts>,
  { pool, region, limits }: Wish,
): string | undefined {
  const wanted = limits.class ?? 'standard';
  const fits = ({ region: its, classes }: PoolFacts): boolean =>
    (region === undefined || its === region) && (classes === undefined || classes.includes(wanted));
  const named = pools.get(pool);
  if (named !== undefined && fits(named)) return pool;
  // The default pool is what a request has that names none.
  if (pool !== DEFAULT_POOL) return undefined;
  for (const [name, facts] of pools) if (fits(facts)) return name;
  return undefined;
}
