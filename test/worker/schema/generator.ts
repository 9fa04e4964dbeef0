/** Numbers that look random and are the same in every run. */
export function generator(seed: number): (count: number) => number {
  let state = seed;
  return (count) => {
    state = (Math.imul(state, 1_103_515_245) + 12_345) & 0x7fffffff;
    return (state >> 8) % count;
  };
}

export function picker(below: (count: number) => number) {
  return <T>(choices: readonly T[]): T => {
    const chosen = choices[below(choices.length)];
    if (chosen === undefined) throw new Error('nothing to choose from');
    return chosen;
  };
}
