import { describe, expect, test } from 'vitest';
import { exportTools, TOOL_FORMATS } from '../../../worker/formats/export.ts';
import { withoutAbsent } from '../../../worker/formats/nulls.ts';
import { tokenOf } from '../fixture-issuer.ts';
import { toolNamed } from '../formats/tools.ts';
import { MODERN, rpc } from './rpc.ts';

/** Numbers that look random and are the same in every run. */
function generator(seed: number): (below: number) => number {
  let state = seed;
  return (below) => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return Math.floor((state / 2 ** 32) * below);
  };
}

type Pick = <T>(from: readonly T[]) => T;

function picker(below: (count: number) => number): Pick {
  return (from) => {
    const picked = from[below(from.length)];
    if (picked === undefined) throw new Error('nothing to pick from');
    return picked;
  };
}

const SCALARS = [
  null,
  true,
  0,
  -1,
  1e308,
  '',
  'x',
  '__proto__',
  '\u0000',
  '\ud800',
  '../..',
  'tools/call',
  'shell',
] as const;
const KEYS = ['id', 'method', 'params', 'name', 'arguments', '_meta', 'cursor', 'session_id', 'command', 'x'];

function anyValue(below: (count: number) => number, depth: number): unknown {
  const pick = picker(below);
  const kind = depth > 3 ? 0 : below(4);
  if (kind === 1) return Array.from({ length: below(4) }, () => anyValue(below, depth + 1));
  if (kind === 2) {
    return Object.fromEntries(
      Array.from({ length: below(4) }, () => [pick(KEYS), anyValue(below, depth + 1)]),
    );
  }
  return pick(SCALARS);
}

const METHODS = [
  'initialize',
  'ping',
  'tools/list',
  'tools/call',
  'resources/list',
  'notifications/initialized',
  'notifications/cancelled',
  'logging/setLevel',
  'server/discover',
  '',
];

function anyMessage(below: (count: number) => number): unknown {
  const pick = picker(below);
  const message = {
    ...(below(10) === 0 ? {} : { jsonrpc: pick(['2.0', '2.0', '2.0', '1.0']) }),
    ...(below(4) === 0 ? {} : { id: pick([1, 'a', 1.5, null, {}]) }),
    method: below(10) === 0 ? anyValue(below, 2) : pick(METHODS),
    params:
      below(3) === 0
        ? { name: pick(['shell', 'create', 'x']), arguments: anyValue(below, 1) }
        : anyValue(below, 1),
  };
  return below(12) === 0 ? [message, anyValue(below, 2)] : below(12) === 0 ? anyValue(below, 0) : message;
}

describe('any message', () => {
  test('is answered: never a fault of the gateway, never a hang, always a message or none', async () => {
    const below = generator(20_260_728);
    // Without the right to make sessions nothing is begun, whatever the message says.
    const token = await tokenOf({ claims: { tenant: 'fuzz', scope: 'tools:shell' } });
    for (let round = 0; round < 1_000; round += 1) {
      const body = anyMessage(below);
      const headers: Record<string, string> = below(5) === 0 ? { 'Mcp-Protocol-Version': MODERN } : {};
      const answer = await rpc(body, { token, headers });
      const about = `${JSON.stringify(body)} ${answer.status} ${answer.text}`;
      expect(answer.status, about).toBeLessThan(500);
      if (answer.status !== 202)
        expect(answer.messages.length + Number(answer.status >= 400), about).toBeGreaterThan(0);
      for (const { error } of answer.messages) {
        expect(error?.code, about).not.toBe(-32_603);
        expect(error?.message, about).not.toBe('');
      }
    }
  });
});

const WORDS = [
  'type',
  'properties',
  'required',
  'items',
  'anyOf',
  'oneOf',
  'allOf',
  '$ref',
  '$defs',
  'enum',
  'const',
  'additionalProperties',
  'description',
  'not',
];

function anySchema(below: (count: number) => number, depth: number): unknown {
  const pick = picker(below);
  if (depth > 4 || below(8) === 0) return pick([...SCALARS, {}, [], true]);
  return Object.fromEntries(
    Array.from({ length: below(5) }, () => {
      const word = pick(WORDS);
      return [word, wordValue(word, below, depth)];
    }),
  );
}

function wordValue(word: string, below: (count: number) => number, depth: number): unknown {
  const pick = picker(below);
  const inner = () => anySchema(below, depth + 1);
  if (below(10) === 0) return anyValue(below, 2);
  switch (word) {
    case 'type':
      return pick(['object', 'string', 'array', 'integer', ['string', 'null'], 'nonsense']);
    case 'properties':
    case '$defs':
      return Object.fromEntries(
        Array.from({ length: below(4) }, () => [pick(['a', 'b', '__x', 'content-type']), inner()]),
      );
    case 'anyOf':
    case 'oneOf':
    case 'allOf':
      return Array.from({ length: below(4) }, inner);
    case 'required':
      return ['a', 'b'];
    case 'enum':
      return [...SCALARS];
    case '$ref':
      return pick(['#', '#/$defs/a', '#/$defs/b', '#/$defs/%zz', 'https://example.com/x', '#/properties/a']);
    default:
      return inner();
  }
}

test('any schema is exported in every format, within bounds', async () => {
  const below = generator(7);
  for (let round = 0; round < 1_000; round += 1) {
    const schema = anySchema(below, 0);
    const source =
      typeof schema === 'object' && schema !== null && !Array.isArray(schema) ? { ...schema } : {};
    const before = JSON.stringify(source);
    for (const format of TOOL_FORMATS) {
      const exported = await exportTools([toolNamed('x', source)], { format, strict: format === 'openai' });
      expect(JSON.stringify(exported).length, before).toBeLessThan(1_000_000);
    }
    withoutAbsent({ a: null, b: { a: null } }, source);
    expect(JSON.stringify(source)).toBe(before);
  }
});
