/** How a tool ended whose end was not seen: nothing is known of what it did, and what it kept is lost with it. */
import type { ToolOutcome } from './port.ts';

export function lostOutcome(status: 'timeout' | 'crashed'): ToolOutcome {
  return {
    status,
    exitCode: null,
    signal: null,
    error: null,
    value: null,
    structured: null,
    results: [],
    stateLost: true,
    usage: { cpuMs: 0, peakMemoryBytes: 0, egressBytes: 0 },
  };
}
