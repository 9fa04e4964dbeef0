/** What the operator says of the sandboxes that are made ahead. */
import { availableParallelism } from 'node:os';
import * as z from 'zod';
import type { WarmPoolSize } from './warm-pool.ts';

export interface PoolSettings extends WarmPoolSize {
  /** Name of the image that most sessions ask for: its sandboxes are kept even when nobody came lately. */
  image: string;
  /** Modules that python has loaded by then, where the image has them. */
  imports: readonly string[];
}

const MAX_DEFAULT_CEILING = 8;
/** Of what the host can hold, so much at most waits for sessions where the operator says nothing. */
const DEFAULT_CAPACITY_SHARE = 0.25;

export const POOL_ENVIRONMENT = {
  SANDGATE_POOL_FLOOR: z.coerce.number().int().min(0).max(1_000).default(1),
  /** 0: no sandbox is made ahead. */
  SANDGATE_POOL_CEILING: z.coerce.number().int().min(0).max(1_000).optional(),
  SANDGATE_POOL_PARALLEL: z.coerce.number().int().min(1).max(64).optional(),
  SANDGATE_POOL_IMAGE: z
    .string()
    .regex(/^[a-z][a-z0-9-]{0,62}$/)
    .default('python'),
  SANDGATE_POOL_IMPORTS: z
    .string()
    .regex(/^[A-Za-z_][\w.]*(,[A-Za-z_][\w.]*){0,31}$/)
    .default('numpy,pandas,matplotlib.pyplot'),
} as const;

type PoolEnvironment = z.infer<z.ZodObject<typeof POOL_ENVIRONMENT>>;

export function poolSettings(values: PoolEnvironment, capacity: number): PoolSettings {
  const share = Math.floor(capacity * DEFAULT_CAPACITY_SHARE);
  const ceiling = values.SANDGATE_POOL_CEILING ?? Math.min(MAX_DEFAULT_CEILING, share);
  return {
    floor: Math.min(values.SANDGATE_POOL_FLOOR, ceiling),
    ceiling,
    parallel: values.SANDGATE_POOL_PARALLEL ?? Math.max(1, Math.floor(availableParallelism() / 2)),
    image: values.SANDGATE_POOL_IMAGE,
    imports: values.SANDGATE_POOL_IMPORTS.split(','),
  };
}
