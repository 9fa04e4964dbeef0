import { expect, it } from 'vitest';
import { StartGate } from '../../../host-agent/sandbox/start-gate.ts';

it('lets at most so many starts run at once, in order, and all of them in the end', async () => {
  const gate = new StartGate(2);
  const order: number[] = [];
  const gates = Array.from({ length: 5 }, () => Promise.withResolvers<void>());
  let running = 0;
  let most = 0;
  const starts = gates.map(({ promise }, index) =>
    gate.run(async () => {
      order.push(index);
      running += 1;
      most = Math.max(most, running);
      await promise;
      running -= 1;
    }),
  );
  for (const { resolve } of gates) {
    await new Promise(setImmediate);
    resolve();
  }
  await Promise.all(starts);
  expect(order).toEqual([0, 1, 2, 3, 4]);
  expect(most).toBe(2);
});

it('gives the place of a start that failed to the next', async () => {
  const gate = new StartGate(1);
  await expect(gate.run(() => Promise.reject(new Error('no')))).rejects.toThrow('no');
  await expect(gate.run(() => Promise.resolve('yes'))).resolves.toBe('yes');
});
