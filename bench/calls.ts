/** One python cell and one shell command over HTTP, against `runsc exec` and against the raw kernel frame. */
import { setTimeout as wait } from 'node:timers/promises';
import type { Api } from './api.ts';
import type { RawOperations } from './raw-sandbox.ts';
import { type Timing, timeInRounds } from './rounds.ts';
import type { Line } from './table.ts';

const ROUNDS = 40;
const WARM_UP_ROUNDS = 3;
/** Both engines compile what runs often: before that a call takes several times as long, as after a start. */
const WARM_UP_CALLS = 300;
const REST_MS = 30;
const CODE = '123456 * 654321';

export async function measureCalls(api: Api, sessionId: string, raw: RawOperations): Promise<Line[]> {
  for (let call = 0; call < WARM_UP_CALLS; call += 1) {
    await succeed(api.execute(sessionId, 'python', { code: CODE }));
    await raw.cell(CODE);
  }
  const [cell, frame, execPython, shell, execTrue] = await timeInRounds(
    [
      {
        name: 'python cell over HTTP',
        prepare: rest,
        run: () => succeed(api.execute(sessionId, 'python', { code: CODE })),
      },
      { name: 'raw kernel frame', prepare: rest, run: () => raw.cell(CODE) },
      {
        name: 'runsc exec python3 -c',
        prepare: rest,
        run: () => raw.exec(['/usr/bin/python3', '-c', `print(${CODE})`]),
      },
      {
        name: 'shell command over HTTP',
        prepare: rest,
        run: () => succeed(api.execute(sessionId, 'shell', { command: 'true' })),
      },
      { name: 'runsc exec true', prepare: rest, run: () => raw.exec(['/bin/true']) },
    ],
    { rounds: ROUNDS, warmUpRounds: WARM_UP_ROUNDS },
  );
  return [
    compare(cell, execPython, { atMost: 1 / 10 }),
    compare(cell, frame, { atMost: 5 }),
    compare(shell, execTrue, { atMost: 1 / 3 }),
  ];
}

/** What a row leaves behind (a process that is reaped, a shell that is made ready) is not the next one's to wait for. */
function rest(): Promise<void> {
  return wait(REST_MS);
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
