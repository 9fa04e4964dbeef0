/** A program in JavaScript with what cannot be replayed waits, is suspended twice, and goes on where it stood. */
import { beforeAll, expect, test } from 'vitest';
import { setUpImages } from '../../host-agent/setup/setup.ts';
import { silentProgress } from '../../host-agent/setup/step.ts';
import { locations } from '../../scripts/locations.ts';
import { type Program, ProgramSchema } from '../../shared/code-mode.ts';
import { SessionSchema } from '../../shared/session.ts';
import { PATIENCE_MS } from '../patience.ts';
import type { SessionClient } from './client.ts';
import { post, registerAsk } from './forking.ts';
import { useStack } from './stack.ts';
import { until } from './until.ts';

const IMAGE_TIMEOUT_MS = 600_000;
const HELD_BYTES = 50_000_000;

beforeAll(() => setUpImages(['node'], locations(process.env), silentProgress), IMAGE_TIMEOUT_MS);

const stack = useStack(() => ({ SANDGATE_POOL_CEILING: '0' }));

/** It holds memory, a generator, an emitter with a listener, a timer that goes on, an open file and promises. */
const PROGRAM = `
const fs = require('node:fs');
const { EventEmitter } = require('node:events');
const held = Buffer.alloc(${HELD_BYTES}, 'x');
const numbers = (function* () { for (let n = 1; ; n += 1) yield n; })();
numbers.next();
const heard = [];
const emitter = new EventEmitter().on('answer', (n) => {
  heard.push(n);
  console.log('heard ' + n);
});
let ticks = 0;
const timer = setInterval(() => { ticks += 1; }, 10);
const file = fs.openSync('log', 'w+');
fs.writeSync(file, 'before\\n');
fs.unlinkSync('log');
console.log('before');
const answers = await Promise.all([0, 1, 2].map(async (n) => {
  const answer = await tools.people.ask({ n });
  emitter.emit('answer', n);
  return answer;
}));
const ticksThen = ticks;
await new Promise((resolve) => setTimeout(resolve, 100));
clearInterval(timer);
fs.writeSync(file, 'after\\n');
console.log(JSON.stringify({
  answers,
  heard,
  next: numbers.next().value,
  held: [held.length, held.every((byte) => byte === 120)],
  ticked: ticks > ticksThen,
  file: fs.readFileSync('/proc/self/fd/' + file, 'utf8'),
}));
`;

test('it goes on with its heap, timer, generator and open file, however it was answered', {
  timeout: 300_000,
}, async () => {
  await registerAsk(stack().api);
  const session = await stack().open({ image: 'node' });
  const waiting = await post(session, '', { language: 'javascript', code: PROGRAM });
  expect(waiting.execution.error).toBeNull();
  expect(waiting.pending.map((pending) => pending.arguments)).toEqual([{ n: 0 }, { n: 1 }, { n: 2 }]);
  const [first, second, third] = waiting.pending.map(({ id }) => id);

  await suspend(session);
  await stack().restartEdge();
  expect(await now(session, waiting)).toMatchObject({ status: 'waiting', pending: waiting.pending });
  const results = `/${waiting.program_id}/tool_results`;
  const after = await post(session, results, { results: [{ id: third, structured: 'c' }] });
  expect(after).toMatchObject({ status: 'waiting', pending: waiting.pending.slice(0, 2) });
  await until('it is awake and has the answer', PATIENCE_MS, async () =>
    (await now(session, waiting)).execution.stdout === 'before\nheard 2\n' ? true : undefined,
  );

  await suspend(session);
  const ended = await post(session, results, {
    results: [
      { id: second, structured: 'b' },
      { id: first, structured: 'a' },
    ],
  });
  expect(ended.execution.error).toBeNull();
  expect(ended).toMatchObject({ status: 'succeeded', pending: [], used: { calls: 3 } });
  const lines = ended.execution.stdout.trim().split('\n');
  const told = JSON.parse(lines.pop() ?? '');
  expect(lines.toSorted()).toEqual(['before', 'heard 0', 'heard 1', 'heard 2']);
  expect(told).toEqual({
    answers: ['a', 'b', 'c'],
    heard: [2, expect.any(Number), expect.any(Number)],
    next: 2,
    held: [HELD_BYTES, true],
    ticked: true,
    file: 'before\nafter\n',
  });
  expect((await session.describe()).generation).toBe(2);
  await session.delete();
});

async function suspend(session: SessionClient): Promise<void> {
  const { value } = await session.api.json(SessionSchema, 'POST', `${session.path}/suspend`);
  expect(value).toMatchObject({ state: 'suspended', host_id: null });
}

async function now(session: SessionClient, { program_id }: Program): Promise<Program> {
  return (await session.api.json(ProgramSchema, 'GET', `${session.path}/programs/${program_id}`)).value;
}
