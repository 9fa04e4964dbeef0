/** Equality of JSON values, and exact arithmetic on the numbers of a text. */
import type { Evaluation } from './evaluation.ts';
import { isObject } from './evaluation.ts';

/** One text for equal values: members in the order of their names. */
export function canonicalText(evaluation: Pick<Evaluation, 'spend'>, value: unknown): string {
  evaluation.spend(1);
  if (Array.isArray(value)) return `[${value.map((item) => canonicalText(evaluation, item)).join(',')}]`;
  if (isObject(value)) {
    const members = Object.keys(value)
      .toSorted()
      .map((name) => `${JSON.stringify(name)}:${canonicalText(evaluation, value[name])}`);
    return `{${members.join(',')}}`;
  }
  if (typeof value === 'string') evaluation.spend(value.length >> 6);
  // One text for an integer, however it was written.
  if (typeof value === 'number' && Number.isInteger(value)) return BigInt(value).toString();
  // Minus zero is zero.
  return JSON.stringify(value) ?? 'null';
}

/** By the decimal digits as they are written: 0.3 is three times 0.1. */
export function isMultipleOf(value: number | bigint, divisor: number | bigint): boolean {
  const a = decimalOf(value);
  const b = decimalOf(divisor);
  if (b.digits === 0n) return false;
  const exponent = Math.min(a.exponent, b.exponent);
  const scale = (number: Decimal) => number.digits * 10n ** BigInt(number.exponent - exponent);
  return scale(a) % scale(b) === 0n;
}

interface Decimal {
  digits: bigint;
  exponent: number;
}

function decimalOf(value: number | bigint): Decimal {
  const [mantissa = '0', power = '0'] = String(value).split('e');
  const [whole = '0', fraction = ''] = mantissa.split('.');
  return { digits: BigInt(`${whole}${fraction}`), exponent: Number(power) - fraction.length };
}
