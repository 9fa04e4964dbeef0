/** The row of a call that has come, of which nothing is known yet but what it asks for. */
import { newId } from '../../../../shared/ids.ts';
import type { CallRow } from './store.ts';

export function newCall(call: {
  name: string;
  text: string | null;
  argumentsBytes: number;
}): Omit<CallRow, 'id'> {
  const { name, text, argumentsBytes } = call;
  return {
    callId: newId('tcl'),
    name,
    arguments: text,
    argumentsBytes,
    status: 'received',
    shown: null,
    mayRepeat: false,
    answer: null,
    resultBytes: null,
    error: null,
    isTaken: false,
    createdAtMs: Date.now(),
    finishedAtMs: null,
    waitsUntilMs: null,
    made: null,
    approval: null,
  };
}
