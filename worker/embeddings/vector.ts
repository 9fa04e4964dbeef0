/** Vectors as they are kept: a byte for each dimension, which changes their likeness by less than a hundredth. */

const MAX_BYTE = 127;

export interface Vector {
  values: Int8Array;
  /** Length of the vector that the bytes are. */
  norm: number;
}

/** Undefined for one that points nowhere. */
export function vectorOf(numbers: readonly number[]): Vector | undefined {
  const largest = numbers.reduce((max, number) => Math.max(max, Math.abs(number)), 0);
  if (largest === 0) return undefined;
  return vectorOfBytes(Int8Array.from(numbers, (number) => Math.round((number / largest) * MAX_BYTE)));
}

export function vectorOfBytes(values: Int8Array): Vector {
  return { values, norm: Math.sqrt(product(values, values)) };
}

/** From -1 to 1; both have the same dimensions. */
export function cosineOf(one: Vector, other: Vector): number {
  return product(one.values, other.values) / (one.norm * other.norm);
}

function product(one: Int8Array, other: Int8Array): number {
  let sum = 0;
  for (let at = 0; at < one.length; at += 1) sum += (one[at] ?? 0) * (other[at] ?? 0);
  return sum;
}
