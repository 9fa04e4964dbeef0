import { expect, it } from 'vitest';
import { OutputGate } from '../../../host-agent/sandbox/output-gate.ts';

const settled = async (promise: Promise<void>): Promise<boolean> => {
  let done = false;
  void promise.then(() => {
    done = true;
  });
  await new Promise(setImmediate);
  return done;
};

it('passes bytes on at once and the sink’s slowness back', async () => {
  const taken: string[] = [];
  const slow = Promise.withResolvers<void>();
  const gate = new OutputGate((stream, bytes) => {
    taken.push(`${stream} ${Buffer.from(bytes).toString()}`);
    return slow.promise;
  });
  const first = gate.pass('stdout', Buffer.from('a'));
  const second = gate.pass('stderr', Buffer.from('b'));
  expect(taken).toEqual(['stdout a', 'stderr b']);
  expect(await settled(first)).toBe(false);
  slow.resolve();
  expect(await settled(second)).toBe(true);
});

it('lets everything go once it is open, still in order', async () => {
  const taken: string[] = [];
  const gate = new OutputGate((_, bytes) => {
    taken.push(Buffer.from(bytes).toString());
    return new Promise(() => undefined);
  });
  const held = gate.pass('stdout', Buffer.from('a'));
  gate.open();
  expect(await settled(held)).toBe(true);
  expect(await settled(gate.pass('stdout', Buffer.from('b')))).toBe(true);
  expect(taken).toEqual(['a', 'b']);
});

it('takes a sink that fails as one that took the bytes', async () => {
  const gate = new OutputGate(() => Promise.reject(new Error('no')));
  expect(await settled(gate.pass('stdout', Buffer.from('a')))).toBe(true);
});
