/** Sessions that are made of one that goes on: eight at once, against one. */
import { ForkedSchema } from '../shared/snapshot-resource.ts';
import type { Api } from './api.ts';
import type { Measurement } from './table.ts';

const ROUNDS = 4;
const FORKS = 8;
/** Of a fork of so many, its one checkpoint included, against a fork of one. */
const AT_MOST = 3;

export async function measureForks(api: Api): Promise<Measurement> {
  const { session_id: id } = await api.createSession();
  await api.execute(id, 'python', { code: 'kept = 1' });
  const timed = async (count: number): Promise<number> => {
    const beganMs = performance.now();
    const forked = ForkedSchema.parse(await api.post(`/v1/sessions/${id}/fork`, { count }));
    const elapsedMs = performance.now() - beganMs;
    for (const { session_id } of forked.sessions) await api.deleteSession(session_id);
    return elapsedMs;
  };
  // Both engines compile what runs often.
  await timed(1);
  await timed(FORKS);
  const one: number[] = [];
  const many: number[] = [];
  for (let round = 0; round < ROUNDS; round += 1) {
    one.push(await timed(1));
    many.push(await timed(FORKS));
  }
  await api.deleteSession(id);
  const [oneMs, manyMs] = [Math.min(...one), Math.min(...many)];
  return {
    lines: [
      {
        what: `${FORKS} forks of an idle session at once : one`,
        ours: `${manyMs.toFixed(0)} ms (${((1000 * FORKS) / manyMs).toFixed(2)} forks/s)`,
        against: `${oneMs.toFixed(0)} ms (${(1000 / oneMs).toFixed(2)} forks/s)`,
        ratio: manyMs / oneMs,
        goal: { atMost: AT_MOST },
      },
    ],
    notes: [],
  };
}
