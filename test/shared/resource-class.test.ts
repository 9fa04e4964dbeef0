import { describe, expect, it } from 'vitest';
import { DEFAULT_RESOURCE_LIMITS, RESOURCE_CLASSES } from '../../shared/limits.ts';
import { ResourceClassesSchema, resolveLimits } from '../../shared/resource-class.ts';
import { LimitsRequestSchema, ResourceLimitsSchema } from '../../shared/session.ts';

const MIB = 1024 * 1024;

describe('resolveLimits', () => {
  it('takes standard for what is not said', () => {
    expect(resolveLimits({}, RESOURCE_CLASSES)).toEqual({ ok: true, value: DEFAULT_RESOURCE_LIMITS });
    expect(resolveLimits({ cpus: 4 }, RESOURCE_CLASSES)).toEqual({
      ok: true,
      value: { ...DEFAULT_RESOURCE_LIMITS, cpus: 4 },
    });
  });

  it.each(['small', 'standard', 'large', 'io'] as const)(
    'gives the sizes of %s, which the protocol allows',
    (name) => {
      expect(resolveLimits({ class: name }, RESOURCE_CLASSES)).toEqual({
        ok: true,
        value: RESOURCE_CLASSES[name],
      });
      expect(ResourceLimitsSchema.parse(RESOURCE_CLASSES[name])).toEqual(RESOURCE_CLASSES[name]);
    },
  );

  it('lets a size be smaller than that of the class, and names one that is larger', () => {
    expect(resolveLimits({ class: 'large', memory_bytes: 512 * MIB }, RESOURCE_CLASSES)).toMatchObject({
      ok: true,
      value: { cpus: 2, memory_bytes: 512 * MIB },
    });
    const refused = resolveLimits({ class: 'small', memory_bytes: 512 * MIB }, RESOURCE_CLASSES);
    expect(refused).toMatchObject({
      ok: false,
      code: 'limits_exceeded',
      violations: [{ path: 'body.limits.memory_bytes', expected: `at most ${256 * MIB} in the class small` }],
    });
  });
});

describe('the classes of an operator', () => {
  it('differ only where they say so', () => {
    const classes = ResourceClassesSchema.parse({ large: { cpus: 4 } });
    expect(classes).toEqual({ ...RESOURCE_CLASSES, large: { ...RESOURCE_CLASSES.large, cpus: 4 } });
    expect(resolveLimits({ class: 'large', cpus: 3 }, classes)).toMatchObject({ value: { cpus: 3 } });
  });

  it.each([{ huge: {} }, { small: { cpus: 1e6 } }, { small: { class: 'io' } }, []])('are not %o', (given) => {
    expect(ResourceClassesSchema.safeParse(given).success).toBe(false);
  });
});

it('a request names no class that is not there', () => {
  expect(LimitsRequestSchema.safeParse({ class: 'huge' }).success).toBe(false);
});
