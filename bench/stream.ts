/**
 * 256 MB from a program to the client over HTTP, against the same program read straight from the supervisor: when all that
 * was written before is stored, and one after another, while the object still brings the former output to its storage.
 */
import { createParser } from 'eventsource-parser';
import { parseCursor, StreamEventSchema } from '../shared/execution.ts';
import type { Api } from './api.ts';
import { untilIdle } from './idle.ts';
import { watchMemory } from './memory.ts';
import type { RawOperations } from './raw-sandbox.ts';
import type { Line, Measurement } from './table.ts';

const MIB = 1024 * 1024;
const TOTAL_BYTES = 256 * MIB;
const ROUNDS = 5;
const FILLING_ROUNDS = 2;
const ROUNDS_IN_A_ROW = 3;
/** 64 KiB writes, so that the program's own cost is small. */
const PROGRAM = `import os
line = b'e' * 65535 + b'\\n'
for _ in range(${TOTAL_BYTES / 65_536}):
    os.write(1, line)
`;

interface Speeds {
  ours: number[];
  against: number[];
}

export async function measureStream(
  api: Api,
  sessionId: string,
  raw: RawOperations,
  pids: { hostAgent: number; workerd: number },
): Promise<Measurement> {
  const sides = {
    ours: () => megabytesPerSecond(() => countStream(api, sessionId)),
    against: () => megabytesPerSecond(() => raw.count(['/usr/bin/python3', '-c', PROGRAM])),
  };
  const rested = await measureRested(sides, pids);
  const inARow = await measureInARow(sides, pids.workerd);
  return {
    lines: [lineOf(rested, 'after a rest'), lineOf(inARow, 'one after another')],
    notes: rested.notes,
  };
}

interface Sides {
  ours: () => Promise<number>;
  against: () => Promise<number>;
}

async function measureRested(
  sides: Sides,
  pids: { hostAgent: number; workerd: number },
): Promise<Speeds & { notes: string[] }> {
  const speeds: Speeds = { ours: [], against: [] };
  const storingMs: number[] = [];
  // The first streams fill heaps and pools up to their bounds: what counts is that they stay there.
  const watches = [
    { name: 'host-agent', watch: watchMemory(pids.hostAgent), filledBytes: 0 },
    { name: 'workerd', watch: watchMemory(pids.workerd), filledBytes: 0 },
  ];
  for (let round = 0; round < ROUNDS; round += 1) {
    if (round === FILLING_ROUNDS) for (const each of watches) each.filledBytes = each.watch.highestBytes();
    speeds.ours.push(await sides.ours());
    storingMs.push(await untilIdle(pids.workerd));
    speeds.against.push(await sides.against());
  }
  const memory = watches.map(({ name, watch, filledBytes }) => {
    watch.stop();
    const filled = mebibytes(filledBytes - watch.firstBytes);
    const grown = mebibytes(watch.highestBytes() - filledBytes);
    return `${name} memory: ${filled} more at most in streams 1 to ${FILLING_ROUNDS}, ${grown} more than that in streams ${FILLING_ROUNDS + 1} to ${ROUNDS}`;
  });
  const seconds = (middle(storingMs) / 1000).toFixed(1);
  return {
    ...speeds,
    notes: [...memory, `what is kept of a stream of 256 MB is in its storage ${seconds} s after the end`],
  };
}

/** The first of each side is not counted: it follows nothing of its kind. */
async function measureInARow(sides: Sides, workerdPid: number): Promise<Speeds> {
  const ours = await inARow(sides.ours);
  await untilIdle(workerdPid);
  return { ours, against: await inARow(sides.against) };
}

async function inARow(measure: () => Promise<number>): Promise<number[]> {
  await measure();
  const speeds: number[] = [];
  for (let round = 0; round < ROUNDS_IN_A_ROW; round += 1) speeds.push(await measure());
  return speeds;
}

function lineOf({ ours, against }: Speeds, when: string): Line {
  const [median, peer] = [middle(ours), middle(against)];
  return {
    what: `stream of 256 MB over HTTP : raw supervisor, ${when}`,
    ours: `${median.toFixed(0)} MB/s`,
    against: `${peer.toFixed(0)} MB/s`,
    ratio: median / peer,
    goal: { atLeast: 0.5 },
  };
}

function mebibytes(bytes: number): string {
  return `${(bytes / MIB).toFixed(0)} MiB`;
}

/**
 * Counts as the raw side does, without making text of the bytes: by the positions that the events carry, each of which
 * must have at least as much data. The output is ASCII, so characters are bytes.
 */
async function countStream(api: Api, sessionId: string): Promise<number> {
  let bytes = 0;
  let ended = false;
  const parser = createParser({
    onEvent: ({ id, event, data }) => {
      if (event === 'stdout') {
        const end = parseCursor(id ?? '')?.stdoutBytes ?? 0;
        if (end - bytes > data.length) throw new Error(`bytes ${bytes} to ${end} are not in their event`);
        bytes = end;
        return;
      }
      const other = StreamEventSchema.parse(JSON.parse(data));
      if (other.event === 'gap') throw new Error(`bytes ${other.from} to ${other.to} were lost`);
      if (other.event === 'end') ended = other.execution.status === 'succeeded';
    },
  });
  const decoder = new TextDecoder();
  for await (const chunk of await api.stream(sessionId, 'python', { code: PROGRAM })) {
    parser.feed(decoder.decode(chunk, { stream: true }));
  }
  if (!ended) throw new Error('the stream did not end with a succeeded execution');
  return bytes;
}

async function megabytesPerSecond(count: () => Promise<number>): Promise<number> {
  const startedAt = performance.now();
  const bytes = await count();
  if (bytes !== TOTAL_BYTES) throw new Error(`${TOTAL_BYTES} bytes were expected, not ${bytes}`);
  return bytes / 1e6 / ((performance.now() - startedAt) / 1000);
}

function middle(values: number[]): number {
  return values.toSorted((left, right) => left - right)[Math.floor(values.length / 2)] ?? Number.NaN;
}
