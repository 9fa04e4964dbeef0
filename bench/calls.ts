/**
 * One python cell and one shell command over HTTP, against `runsc exec` and against the raw kernel frame: each behind a
 * rest, when every thread on the road has to be woken, and one after another.
 */
import { setTimeout as wait } from 'node:timers/promises';
import type { Api } from './api.ts';
import type { RawOperations } from './raw-sandbox.ts';
import { type Row, type Timing, timeInRounds } from './rounds.ts';
import type { Line, Measurement } from './table.ts';

/** What a row leaves behind (a process that is reaped, a shell that is made ready) is not the next one's to wait for. */
const AFTER_A_REST = { rounds: 40, warmUpRounds: 3 };
const REST_MS = 30;
const ONE_AFTER_ANOTHER = { rounds: 8, warmUpRounds: 1, inARow: 10 };
/** Both engines compile what runs often: before that a call takes several times as long, as after a start. */
const WARM_UP_CALLS = 300;
const CODE = '123456 * 654321';

export async function measureCalls(api: Api, sessionId: string, raw: RawOperations): Promise<Measurement> {
  for (let call = 0; call < WARM_UP_CALLS; call += 1) {
    await succeed(api.execute(sessionId, 'python', { code: CODE }));
    await raw.cell(CODE);
  }
  const rows = rowsOf(api, sessionId, raw);
  const rested = rows.map((row) => ({ ...row, prepare: () => wait(REST_MS) }));
  return {
    lines: [
      ...linesOf(await timeInRounds(rested, AFTER_A_REST), 'after a rest'),
      ...linesOf(await timeInRounds(rows, ONE_AFTER_ANOTHER), 'one after another'),
    ],
    notes: [],
  };
}

function rowsOf(api: Api, sessionId: string, raw: RawOperations): Row[] {
  return [
    {
      name: 'python cell over HTTP',
      run: () => succeed(api.execute(sessionId, 'python', { code: CODE })),
    },
    { name: 'raw kernel frame', run: () => raw.cell(CODE) },
    { name: 'runsc exec python3 -c', run: () => raw.exec(['/usr/bin/python3', '-c', `print(${CODE})`]) },
    {
      name: 'shell command over HTTP',
      run: () => succeed(api.execute(sessionId, 'shell', { command: 'true' })),
    },
    { name: 'runsc exec true', run: () => raw.exec(['/bin/true']) },
  ];
}

function linesOf([cell, frame, execPython, shell, execTrue]: readonly Timing[], when: string): Line[] {
  return [
    compare(cell, execPython, { atMost: 1 / 10 }),
    compare(cell, frame, { atMost: 5 }),
    compare(shell, execTrue, { atMost: 1 / 3 }),
  ].map((line) => ({ ...line, what: `${line.what}, ${when}` }));
}

async function succeed(call: Promise<{ status: string }>): Promise<void> {
  const { status } = await call;
  if (status !== 'succeeded') throw new Error(`the call ended as ${status}`);
}

export function compare(ours: Timing | undefined, peer: Timing | undefined, goal: Line['goal']): Line {
  if (ours === undefined || peer === undefined) throw new Error('a row was not measured');
  return {
    what: `${ours.name} : ${peer.name}`,
    ours: milliseconds(ours),
    against: milliseconds(peer),
    ratio: ours.medianMs / peer.medianMs,
    goal,
  };
}

function milliseconds({ medianMs, p95Ms }: Timing): string {
  return `${medianMs.toFixed(2)} ms (p95 ${p95Ms.toFixed(2)})`;
}
