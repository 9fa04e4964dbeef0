/** Lists of what has labels: those with some of them. */
import * as z from 'zod';
import { type LabelTerm, parseLabelSelector } from '../../shared/session.ts';
import { invalid } from '../middleware/body.ts';

export const LABEL_QUERY = z
  .string()
  .max(2_048)
  .optional()
  .describe('Only those with these labels: `team=red,env` (any value of `env`), all of them.');

export function labelsOf(selector: string | undefined): LabelTerm[] {
  const terms = selector === undefined ? [] : parseLabelSelector(selector);
  if (terms === undefined) {
    throw invalid([
      { path: 'query.label', expected: 'labels as `key=value` or `key`, with commas between them' },
    ]);
  }
  return terms;
}
