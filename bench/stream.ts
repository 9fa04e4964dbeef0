/** 256 MB from a program to the client over HTTP, against the same program read straight from the supervisor. */
import { createParser } from 'eventsource-parser';
import { StreamEventSchema } from '../shared/execution.ts';
import type { Api } from './api.ts';
import { watchMemory } from './memory.ts';
import type { RawOperations } from './raw-sandbox.ts';
import type { Line } from './table.ts';

const MIB = 1024 * 1024;
const TOTAL_BYTES = 256 * MIB;
const ROUNDS = 3;
/** 64 KiB writes, so that the program's own cost is small. */
const PROGRAM = `import os
line = b'e' * 65535 + b'\\n'
for _ in range(${TOTAL_BYTES / 65_536}):
    os.write(1, line)
`;

export interface StreamMeasurement {
  line: Line;
  notes: string[];
}

export async function measureStream(
  api: Api,
  sessionId: string,
  raw: RawOperations,
  pids: { hostAgent: number; workerd: number },
): Promise<StreamMeasurement> {
  const ours: number[] = [];
  const against: number[] = [];
  const hostAgent = watchMemory(pids.hostAgent);
  const workerd = watchMemory(pids.workerd);
  for (let round = 0; round < ROUNDS; round += 1) {
    ours.push(await megabytesPerSecond(() => countStream(api, sessionId)));
    against.push(await megabytesPerSecond(() => raw.count(['/usr/bin/python3', '-c', PROGRAM])));
  }
  const [median, peer] = [middle(ours), middle(against)];
  return {
    line: {
      what: 'stream of 256 MB over HTTP : raw supervisor',
      ours: `${median.toFixed(0)} MB/s`,
      against: `${peer.toFixed(0)} MB/s`,
      ratio: median / peer,
      goal: { atLeast: 0.5 },
    },
    notes: [
      `host-agent memory grew by ${(hostAgent.stop().growthBytes / MIB).toFixed(0)} MiB over ${ROUNDS} streams`,
      `workerd memory grew by ${(workerd.stop().growthBytes / MIB).toFixed(0)} MiB over ${ROUNDS} streams`,
    ],
  };
}

/** Reads the events as a client does and adds up the text; the output is ASCII, so characters are bytes. */
async function countStream(api: Api, sessionId: string): Promise<number> {
  let bytes = 0;
  let ended = false;
  const parser = createParser({
    onEvent: ({ data }) => {
      const event = StreamEventSchema.parse(JSON.parse(data));
      if (event.event === 'stdout') bytes += event.text.length;
      if (event.event === 'gap') throw new Error(`bytes ${event.from} to ${event.to} were lost`);
      if (event.event === 'end') ended = event.execution.status === 'succeeded';
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
