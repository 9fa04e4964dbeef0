/**
 * Kills this process when its event loop stands still. A thread counts its own ticks since the loop last gave a sign, not
 * seconds: a machine or process that was stopped for a while stops both, and is not taken for a stall.
 */
import { Worker } from 'node:worker_threads';

const BEAT_MS = 500;
const TICK_MS = 500;
/** systemd's own watchdog waits as long; this one is there where no systemd is. */
export const MAX_STALL_MS = 60_000;

const WATCHER = `
const { workerData } = require('node:worker_threads');
const { writeSync } = require('node:fs');
const beats = new Int32Array(workerData.beats);
let seen = -1;
let ticks = 0;
setInterval(() => {
  const now = Atomics.load(beats, 0);
  ticks = now === seen ? ticks + 1 : 0;
  seen = now;
  if (ticks * workerData.tickMs < workerData.maxStallMs) return;
  writeSync(2, 'sandgate host-agent: the event loop stands still; killed\\n');
  process.kill(process.pid, 'SIGKILL');
}, workerData.tickMs);
`;

export interface LoopWatch {
  stop(): void;
}

export function watchLoop(maxStallMs = MAX_STALL_MS): LoopWatch {
  const beats = new SharedArrayBuffer(4);
  const counter = new Int32Array(beats);
  const timer = setInterval(() => Atomics.add(counter, 0, 1), BEAT_MS).unref();
  const worker = new Worker(WATCHER, {
    eval: true,
    workerData: { beats, tickMs: TICK_MS, maxStallMs },
    resourceLimits: { maxOldGenerationSizeMb: 8, maxYoungGenerationSizeMb: 4 },
  });
  worker.unref();
  return {
    stop() {
      clearInterval(timer);
      void worker.terminate();
    },
  };
}
