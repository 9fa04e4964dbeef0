/** 256 MB up and down over HTTP, against the same bytes through the pipe of a raw supervisor. */

import { BASE_ENVIRONMENT, WORKSPACE } from '../host-agent/sandbox/spec.ts';
import type { Installation } from '../host-agent/setup/setup.ts';
import { startRawSandbox } from '../test/fixtures/raw-sandbox.ts';
import type { Api } from './api.ts';
import { watchMemory } from './memory.ts';
import type { Line } from './table.ts';

const MIB = 1024 * 1024;
const TOTAL_BYTES = 256 * MIB;
const ROUNDS = 3;
const RELEASE_TIMEOUT_MS = 20_000;
const BLOCK = Buffer.alloc(MIB, 'file ');
const environment = Object.entries(BASE_ENVIRONMENT).map(([name, value]) => `${name}=${value}`);

export interface FileMeasurement {
  lines: Line[];
  notes: string[];
}

export async function measureFiles(
  api: Api,
  sessionId: string,
  installation: Installation,
  pids: { hostAgent: number; workerd: number },
): Promise<FileMeasurement> {
  const raw = await startRawSandbox(installation);
  const place = { cwd: WORKSPACE, environment };
  const times = { up: [] as number[], down: [] as number[], rawUp: [] as number[], rawDown: [] as number[] };
  const file = `/v1/sessions/${sessionId}/files/bench.bin`;
  const memory = { hostAgent: watchMemory(pids.hostAgent), workerd: watchMemory(pids.workerd) };
  try {
    for (let round = 0; round < ROUNDS; round += 1) {
      times.up.push(await secondsOf(() => api.upload(file, blocks())));
      times.down.push(
        await secondsOf(async () => {
          let bytes = 0;
          for await (const chunk of await api.download(file)) bytes += chunk.length;
          if (bytes !== TOTAL_BYTES) throw new Error(`${TOTAL_BYTES} bytes were expected, not ${bytes}`);
        }),
      );
      times.rawUp.push(
        await secondsOf(async () => {
          const channel = await raw.link.spawn({
            ...place,
            argv: ['/bin/dd', 'of=bench.bin', 'bs=64K', 'status=none'],
          });
          if (!channel.ok) throw new Error(channel.failure.message);
          for (const block of blocks()) await channel.value.writeStdin(block);
          channel.value.closeStdin();
          await channel.value.exited;
          await channel.value.release(RELEASE_TIMEOUT_MS);
        }),
      );
      times.rawDown.push(
        await secondsOf(async () => {
          let bytes = 0;
          const channel = await raw.link.spawn({
            ...place,
            argv: ['/bin/dd', 'if=bench.bin', 'bs=64K', 'status=none'],
            onOutput: (_stream, chunk) => {
              bytes += chunk.length;
            },
          });
          if (!channel.ok) throw new Error(channel.failure.message);
          await channel.value.exited;
          await channel.value.release(RELEASE_TIMEOUT_MS);
          if (bytes !== TOTAL_BYTES) throw new Error(`${TOTAL_BYTES} bytes were expected, not ${bytes}`);
        }),
      );
    }
  } finally {
    await raw.stop();
  }
  const growth = ({ firstBytes, highestBytes }: ReturnType<typeof watchMemory>): string =>
    ((highestBytes() - firstBytes) / MIB).toFixed(0);
  const notes = [
    `host-agent memory grew by at most ${growth(memory.hostAgent)} MiB over ${ROUNDS} uploads and downloads`,
    `workerd memory grew by at most ${growth(memory.workerd)} MiB over ${ROUNDS} uploads and downloads`,
  ];
  memory.hostAgent.stop();
  memory.workerd.stop();
  return {
    lines: [
      lineOf('upload of 256 MB : raw pipe of the supervisor', times.up, times.rawUp),
      lineOf('download of 256 MB : raw pipe of the supervisor', times.down, times.rawDown),
    ],
    notes,
  };
}

function* blocks(): Generator<Buffer> {
  for (let sent = 0; sent < TOTAL_BYTES; sent += MIB) yield BLOCK;
}

async function secondsOf(run: () => Promise<void>): Promise<number> {
  const startedAt = performance.now();
  await run();
  return (performance.now() - startedAt) / 1000;
}

function lineOf(what: string, seconds: number[], rawSeconds: number[]): Line {
  const [ours, against] = [middle(seconds), middle(rawSeconds)];
  const speed = (duration: number): string => `${(TOTAL_BYTES / 1e6 / duration).toFixed(0)} MB/s`;
  return {
    what,
    ours: speed(ours),
    against: speed(against),
    ratio: against / ours,
    goal: { atLeast: 0.4 },
  };
}

function middle(values: readonly number[]): number {
  return values.toSorted((left, right) => left - right)[Math.floor(values.length / 2)] ?? Number.NaN;
}
