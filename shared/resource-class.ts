/** From what a request says of limits to the limits of a sandbox. */
import * as z from 'zod';
import { failure, type Outcome, success } from './errors.ts';
import { RESOURCE_CLASSES } from './limits.ts';
import { type LimitsRequest, LimitsRequestSchema, type ResourceLimits } from './session.ts';

export type ResourceClass = keyof typeof RESOURCE_CLASSES;
export type ResourceClasses = Readonly<Record<ResourceClass, ResourceLimits>>;

/** What an operator says of classes: sizes that are not named stay as they are. */
export const ResourceClassesSchema = z
  .strictObject({
    small: sizesOver('small'),
    standard: sizesOver('standard'),
    large: sizesOver('large'),
    io: sizesOver('io'),
  })
  .readonly();

function sizesOver(name: ResourceClass) {
  return LimitsRequestSchema.omit({ class: true })
    .default({})
    .transform((sizes): ResourceLimits => ({ ...RESOURCE_CLASSES[name], ...withoutUndefined(sizes) }));
}

/**
 * Without a class the sizes are those of `standard` but for what is named, and the host's caps are the bound. With a class
 * its sizes are the bound too: a smaller one may be named, a larger one is refused.
 */
export function resolveLimits(request: LimitsRequest, classes: ResourceClasses): Outcome<ResourceLimits> {
  const { class: className, ...named } = request;
  const sizes = classes[className ?? 'standard'];
  const limits: ResourceLimits = { ...sizes, ...withoutUndefined(named) };
  if (className === undefined) return success(limits);
  for (const name of NAMES) {
    if (limits[name] <= sizes[name]) continue;
    const expected = `at most ${sizes[name]} in the class ${className}`;
    return failure('limits_exceeded', `${name}: ${expected}, not ${limits[name]}`, {
      violations: [{ path: `body.limits.${name}`, expected }],
    });
  }
  return success(limits);
}

const NAMES = ['cpus', 'memory_bytes', 'processes', 'workspace_bytes', 'tmp_bytes'] as const;

type Sizes = { [Name in keyof ResourceLimits]?: ResourceLimits[Name] | undefined };

function withoutUndefined(sizes: Sizes): Partial<ResourceLimits> {
  return Object.fromEntries(Object.entries(sizes).filter(([, size]) => size !== undefined));
}
