/** Whether a webhook is to be told of an event. Pure. */
import type { Event } from '../../shared/event.ts';
import { parseLabelSelector } from '../../shared/session.ts';

export interface EventFilter {
  /** Null: all of them. */
  events: readonly string[] | null;
  /** Null: of all sessions and workflows. */
  labels: string | null;
}

export function isWanted(
  { events, labels }: EventFilter,
  event: Event,
  ofItsOrigin: Readonly<Record<string, string>>,
): boolean {
  if (events !== null && !events.includes(event.type)) return false;
  const terms = labels === null ? [] : (parseLabelSelector(labels) ?? []);
  return terms.every(({ key, value }) =>
    value === undefined ? Object.hasOwn(ofItsOrigin, key) : ofItsOrigin[key] === value,
  );
}
