import { describe, expect, it } from 'vitest';
import * as z from 'zod';
import { compiled } from '../../shared/compiled-schema.ts';
import { SessionEventSchema } from '../../shared/event.ts';
import { ExecuteSchema } from '../../shared/execution.ts';
import { SessionLinkDownSchema, SessionLinkUpSchema } from '../../shared/frames.ts';
import { GrantClaimsSchema } from '../../shared/grant.ts';
import { ReceiptSchema } from '../../shared/receipt.ts';

describe('the schemas of what every call passes', () => {
  it.each([
    ['frames of a host', SessionLinkUpSchema],
    ['frames for a host', SessionLinkDownSchema],
    ['claims of a grant', GrantClaimsSchema],
    ['a receipt', ReceiptSchema],
    ['an event of a session', SessionEventSchema],
    ['the body of a call', ExecuteSchema],
  ])('have nothing that keeps %s from being compiled', (_name, schema) => {
    expect(() => z.compile<z.ZodType>(schema, { strict: true })).not.toThrow();
  });
});

describe('a compiled schema', () => {
  const schema = z.strictObject({
    name: z.string().regex(/^[a-z]+$/),
    sizes: z.array(z.int().min(1)).max(2),
    kind: z.enum(['small', 'large']).default('small'),
    note: z.string().optional(),
  });
  const values: unknown[] = [
    { name: 'a', sizes: [1, 2] },
    { name: 'a', sizes: [], kind: 'large', note: 'x' },
    { name: 'a', sizes: [], note: undefined },
    { name: 'A', sizes: [0, 1.5, 3], kind: 'none' },
    { name: 'a', sizes: [1], more: true },
    JSON.parse('{ "name": "a", "sizes": [], "__proto__": { "note": "x" } }'),
    JSON.parse('{ "name": "a", "sizes": [], "constructor": 1 }'),
    { sizes: {} },
    [],
    null,
    'text',
  ];

  it.each(values)('says of %j what the schema says, errors and all', (value) => {
    const expected = schema.safeParse(value);
    const seen = compiled(schema).safeParse(value);
    expect(seen.success).toBe(expected.success);
    expect(seen.data).toEqual(expected.data);
    expect(seen.error?.issues).toEqual(expected.error?.issues);
  });

  it('hands out a value of its own', () => {
    const value = { name: 'a', sizes: [1] };
    const parsed = compiled(schema).parse(value);
    parsed.sizes.push(2);
    expect(value.sizes).toEqual([1]);
  });

  it('can be extended like the schema', () => {
    const extended = compiled(schema).omit({ kind: true }).extend({ more: z.boolean() });
    expect(extended.safeParse({ name: 'a', sizes: [], more: true }).success).toBe(true);
    expect(extended.safeParse({ name: 'a', sizes: [], more: true, kind: 'small' }).success).toBe(false);
  });
});
