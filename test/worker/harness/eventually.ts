import { vi } from 'vitest';
import { PATIENCE_MS } from '../../patience.ts';

/** What comes of a look that does not throw any more. */
export function eventually<Found>(look: () => Found | Promise<Found>, intervalMs = 50): Promise<Found> {
  return vi.waitFor(look, { timeout: PATIENCE_MS, interval: intervalMs });
}
